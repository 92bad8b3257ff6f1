package scale_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// rig is a system on memory stores, with a clock that the test moves.
type rig struct {
	t     *testing.T
	store meta.Store
	now   time.Time
	ids   *queue.IDs

	// bare is the store without what a test puts around it.
	bare *memmeta.Store

	topics  *topics.Service
	scale   *scale.Service
	produce *produce.Service
	log     *segment.Log
	woken   int
}

// newRig makes a rig; wrap, if any, goes between its use cases and their store.
func newRig(t *testing.T, wrap ...func(meta.Store) meta.Store) *rig {
	t.Helper()
	r := &rig{t: t, bare: memmeta.New(t), now: time.UnixMilli(1_785_000_000_000)}
	r.store = r.bare
	for _, w := range wrap {
		r.store = w(r.store)
	}
	r.assemble(r.store)
	return r
}

// assemble makes the use cases of another process on store.
func (r *rig) assemble(store meta.Store) {
	r.ids = queue.NewIDs(nil)
	clock := queue.Clock(func() time.Time { return r.now })
	bodies := memblob.New(nil, clock, memblob.Options{})
	r.log = segment.New(segment.Deps{Meta: store, Blob: bodies, IDs: r.ids, Clock: clock})
	r.topics = topics.New(topics.Deps{Meta: store, IDs: r.ids, Clock: clock, Wake: func() { r.woken++ }})
	r.scale = scale.New(scale.Deps{Meta: store, Topics: r.topics, Lease: lease.New(store, r.ids, clock), IDs: r.ids, Clock: clock})
	r.produce = produce.New(produce.Deps{
		Meta: store, Blob: bodies, Log: r.log, Topics: r.topics, Hub: notify.NewHub(), IDs: r.ids, Clock: clock,
	})
}

func (r *rig) create(name string, cfg topics.Config) {
	r.t.Helper()
	if _, _, err := r.topics.Create(r.t.Context(), name, cfg); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) load(topic string) *topics.Map {
	r.t.Helper()
	m, err := r.topics.Reload(r.t.Context(), topic)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// send produces messages with the given keys in one call, and gives their ids.
func (r *rig) send(topic string, g produce.Guard, keys ...string) []queue.MessageID {
	r.t.Helper()
	ids, err := r.trySend(r.t.Context(), topic, g, keys...)
	if err != nil {
		r.t.Fatal(err)
	}
	return ids
}

func (r *rig) trySend(ctx context.Context, topic string, g produce.Guard, keys ...string) ([]queue.MessageID, error) {
	req := produce.Request{Topic: topic, Guard: g}
	for _, k := range keys {
		req.Messages = append(req.Messages, produce.Message{Key: []byte(k), Body: []byte(k)})
	}
	answer, err := r.produce.Produce(ctx, req)
	if err != nil {
		return nil, err
	}
	ids := make([]queue.MessageID, len(keys))
	for _, run := range answer.Runs {
		if run.Err != nil {
			return nil, run.Err
		}
		for i := range run.Count {
			ids[run.First+i] = queue.MessageID{Segment: run.ID.Segment, Offset: run.ID.Offset + queue.Offset(i)}
		}
	}
	return ids, nil
}

// runLeader makes one run, which must not fail.
func (r *rig) runLeader() scale.Report {
	r.t.Helper()
	rep, err := r.scale.Run(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}

// messages counts the messages in all segments of a topic.
func (r *rig) messages(topic string) (n uint64) {
	r.t.Helper()
	m := r.load(topic)
	heads, err := r.topics.Heads(r.t.Context(), m.Segments)
	if err != nil {
		r.t.Fatal(err)
	}
	for i, h := range heads {
		n += uint64(h.Next)
		if h.Sealed != (m.Segments[i].Sealed != 0) {
			r.t.Errorf("segment %s: head and descriptor differ on whether it is sealed", h.Segment)
		}
	}
	return n
}

// tiles holds invariant 4: open segments tile the ring, and children cover exactly their parents.
func (r *rig) tiles(topic string) {
	r.t.Helper()
	m := r.load(topic)
	edge := uint32(0)
	for _, seg := range m.Open {
		if seg.Range.Lo != edge {
			r.t.Fatalf("open segments leave or overlap at %d: %v", edge, seg.Range)
		}
		edge = seg.Range.Hi
	}
	if edge != queue.Slots {
		r.t.Fatalf("open segments end at %d", edge)
	}
	for _, seg := range m.Segments {
		if (seg.Sealed != 0) != (len(seg.Successors) > 0) {
			r.t.Errorf("segment %s: sealed %v, successors %v", seg.ID, seg.Sealed, seg.Successors)
		}
		edge := seg.Range.Lo
		for _, id := range seg.Successors {
			next := m.Segment(id)
			if next == nil || next.Range.Lo > edge {
				r.t.Fatalf("segment %s: its successors leave a gap at %d", seg.ID, edge)
			}
			edge = max(edge, next.Range.Hi)
		}
		if len(seg.Successors) > 0 && edge < seg.Range.Hi {
			r.t.Fatalf("segment %s: its successors end at %d", seg.ID, edge)
		}
	}
}

func keys(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return out
}
