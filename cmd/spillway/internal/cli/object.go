package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/digest"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/load"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// objectJob is what a file that becomes one message is sent with.
type objectJob struct {
	options load.Options
	flags   produceFlags
}

// produceObject uploads a file as it is and makes it the body of one message: of any size up to what
// an object may have, without it being in memory.
func (a *app) produceObject(ctx context.Context, s *connection, topic string, src *source, job objectJob) error {
	var counts load.Counts
	started := time.Now()
	// The SDK reads a file twice: for its checksum, and to send it.
	passes := int64(2)
	if job.options.Checksum {
		passes++
	}
	bar := a.bar(job.flags, passes*src.size, func() (int64, string) {
		return src.read.Load(), units.FormatBytes(float64(src.size))
	})
	sum, result, err := sendObject(ctx, s.client, topic, src, job)
	bar.end()
	if err != nil {
		return err
	}
	counts.Read.Store(1)
	counts.Keyless.Store(1)
	counts.Sent.Store(1)
	counts.Bytes.Store(uint64(src.size)) // #nosec G115 -- not negative here
	if len(result.Warnings) > 0 {
		counts.Ignored.Store(1)
	}
	return a.printProduced(s, &counts, sum, time.Since(started), job.options.Checksum)
}

func sendObject(ctx context.Context, c *client.Client, topic string, src *source, job objectJob) (digest.Sum, client.Result, error) {
	var sum digest.Sum
	if job.flags.key != "" {
		return sum, client.Result{}, exit.Usagef("--key needs --format jsonl, csv or deb822: a raw body has no fields")
	}
	if job.options.Checksum {
		body := digest.NewBody()
		if _, err := io.Copy(body, src); err != nil {
			return sum, client.Result{}, err
		}
		if _, err := src.Seek(0, io.SeekStart); err != nil {
			return sum, client.Result{}, err
		}
		sum = body.Sum()
	}
	object, err := c.Upload(ctx, topic, src, src.size)
	if err != nil {
		return sum, client.Result{}, err
	}
	o := job.options
	answer, err := c.Reference(ctx, topic, []client.Reference{{
		Object: object, Message: client.Message{Headers: o.Headers, Delay: o.Delay, TTL: o.TTL},
	}}, client.Guard{IdempotencyKey: "cli-" + queue.NewIDs(nil).ID()})
	if err != nil {
		return sum, client.Result{}, err
	}
	if len(answer) != 1 || len(answer[0].Results) != 1 {
		return sum, client.Result{}, errors.New("reference: the answer has no result")
	}
	result := answer[0].Results[0]
	return sum, result, result.Err
}
