package load

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// referenceBytes ends a batch file: large enough that an upload is worth its two calls.
	referenceBytes = 8 << 20
	// referenceMessages ends one by count.
	referenceMessages = 5000
	referenceLanes    = 4
	// referenceIdle sends what there is when the input pauses.
	referenceIdle = 50 * time.Millisecond
)

// referenceSender packs messages into batch files, uploads them and submits references. Messages of
// one key go through one lane, which has one file under way at a time, so they keep their order.
type referenceSender struct {
	lanes []*referenceLane
	wg    sync.WaitGroup
	next  int
}

type referenceLane struct {
	client *client.Client
	topic  string
	in     chan outgoing
	batch  int
	// id and sequence make a submission safe to repeat.
	id       string
	sequence uint64
	encoder  *batch.Encoder
	waiting  []outgoing
	file     []byte
}

type outgoing struct {
	ctx     context.Context //nolint:containedctx // a message's own, for the calls that carry it
	message client.Message
	done    func(client.Result)
}

func newReferenceSender(c *client.Client, topic string, o SenderOptions) *referenceSender {
	s := &referenceSender{}
	lanes, size := o.Lanes, o.Batch
	if lanes == 0 {
		lanes = referenceLanes
	}
	if size == 0 {
		size = referenceMessages
	}
	ids := queue.NewIDs(nil)
	for range lanes {
		l := &referenceLane{
			client: c, topic: topic, in: make(chan outgoing), batch: size, id: "cli-" + ids.ID(),
			encoder: batch.NewEncoder(batch.Options{}),
		}
		s.lanes = append(s.lanes, l)
		s.wg.Go(l.run)
	}
	return s
}

// Send implements Sender. It is called by one goroutine.
func (s *referenceSender) Send(ctx context.Context, m client.Message, done func(client.Result)) error {
	lane := 0
	if len(m.Key) > 0 {
		lane = int(queue.SlotOf(m.Key)) * len(s.lanes) / queue.Slots
	} else {
		// A full file's worth to each lane in turn would leave the others idle at the start.
		s.next = (s.next + 1) % len(s.lanes)
		lane = s.next
	}
	select {
	case s.lanes[lane].in <- outgoing{context.WithoutCancel(ctx), m, done}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close implements Sender.
func (s *referenceSender) Close(context.Context) error {
	for _, l := range s.lanes {
		close(l.in)
	}
	s.wg.Wait()
	return nil
}

func (l *referenceLane) run() {
	idle := time.NewTimer(referenceIdle)
	defer idle.Stop()
	for {
		select {
		case o, ok := <-l.in:
			if !ok {
				l.flush()
				return
			}
			idle.Reset(referenceIdle)
			l.add(o)
		case <-idle.C:
			l.flush()
		}
	}
}

func (l *referenceLane) add(o outgoing) {
	rec, err := recordOf(&o.message)
	if err == nil {
		err = l.encoder.Add(&rec)
	}
	if err != nil {
		o.done(client.Result{Err: err})
		return
	}
	l.waiting = append(l.waiting, o)
	if len(l.waiting) >= l.batch || l.encoder.BodyBytes() >= referenceBytes {
		l.flush()
	}
}

func recordOf(m *client.Message) (batch.Record, error) {
	headers, err := batch.MakeHeaders(m.Headers)
	if err != nil {
		return batch.Record{}, err
	}
	rec := batch.Record{Slot: queue.SlotOf(m.Key), Key: m.Key, Headers: headers, Body: m.Body, TTL: m.TTL}
	if len(m.Key) == 0 {
		var b [2]byte
		_, _ = rand.Read(b[:]) // it never fails
		rec.Slot = queue.Slot(b[0])<<8 | queue.Slot(b[1])
	}
	if m.Delay != nil {
		rec.Delay, rec.HasDelay = *m.Delay, true
	}
	return rec, nil
}

// flush sends the file and gives each message its result.
func (l *referenceLane) flush() {
	if len(l.waiting) == 0 {
		return
	}
	results, err := l.send(l.waiting[0].ctx)
	order := l.encoder.Order()
	for pos := range l.waiting {
		o, result := l.waiting[pos], client.Result{Err: err}
		if err == nil {
			o, result = l.waiting[order[pos]], results[pos]
		}
		o.done(result)
	}
	clear(l.waiting)
	l.waiting = l.waiting[:0]
	l.encoder.Reset()
}

// send gives the results in the order of the file.
func (l *referenceLane) send(ctx context.Context) ([]client.Result, error) {
	var nonce [batch.NonceSize]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	file, err := l.encoder.Finish(l.file[:0], nonce)
	if err != nil {
		return nil, err
	}
	l.file = file
	object, err := l.client.UploadBytes(ctx, l.topic, file)
	if err != nil {
		return nil, err
	}
	l.sequence++
	answer, err := l.client.Reference(ctx, l.topic, []client.Reference{{Object: object, Batch: true}},
		client.Guard{ProducerID: l.id, Sequence: l.sequence})
	if err != nil {
		return nil, err
	}
	results := answer[0].Results
	if len(results) != len(l.waiting) { // the file was refused as a whole
		return nil, results[0].Err
	}
	return results, nil
}
