package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// frameBuffer holds a frame's header and small payloads; larger payloads are read past it.
const frameBuffer = 32 << 10

// frames collects the messages of a stream of frames.
type frames struct {
	client *Client
	op     string
	// limit is how many messages were asked for; a server that sends more is not believed.
	limit    int
	messages []*Received
}

// readAll reads to the end of the stream. Messages of frames that came whole stay, whatever the
// error.
func (f *frames) readAll(ctx context.Context, body io.Reader) error {
	r := wire.NewFrameReader(bufio.NewReaderSize(body, frameBuffer))
	for {
		frame, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return transportError(ctx, f.op, err)
		case err != nil:
			return err
		}
		if len(f.messages)+frame.Count > f.limit {
			return malformed(f.op, fmt.Errorf("it holds more than the %d messages asked for", f.limit))
		}
		f.add(frame)
	}
}

func (f *frames) add(frame *wire.Frame) {
	var src *source
	if frame.Reference != nil {
		src = f.client.sourceOf(frame)
	}
	for d, err := range frame.Messages() {
		if err != nil && d.ID.Segment == "" { // the batch cannot be opened at all
			f.addUnreadable(frame, err)
			return
		}
		m := receivedOf(&d, src)
		if m.Err = err; err != nil {
			m.Body, m.source = nil, nil
		}
		f.messages = append(f.messages, m)
	}
}

// addUnreadable gives each message of the frame the error: a claimed one is to be settled all the
// same.
func (f *frames) addUnreadable(frame *wire.Frame, err error) {
	for i := range frame.Count {
		offset := frame.Offset + queue.Offset(i) // #nosec G115 -- bounded by MaxBatchRecords
		m := &Received{ID: MessageID{Segment: frame.Segment, Offset: offset}, Created: frame.Created.Time(), Err: err}
		if frame.Claimed {
			m.Attempt, m.ClaimExpires = frame.Attempt, frame.ClaimExpires.Time()
			m.Receipt = Receipt{Segment: frame.Segment, Claim: frame.Claim, Lo: offset, Hi: offset + 1}
		}
		f.messages = append(f.messages, m)
	}
}

// checkReceipts bounds a call's receipts.
func checkReceipts(receipts []Receipt) error {
	switch n := len(receipts); {
	case n == 0:
		return queue.Invalid("receipts", nil, "is empty")
	case n > queue.MaxReceipts:
		return queue.Invalid("receipts", queue.MaxReceipts, "has %d entries, more than %d", n, queue.MaxReceipts)
	}
	return nil
}
