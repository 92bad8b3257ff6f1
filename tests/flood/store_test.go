package flood_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/latency"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
)

// strict is a store with DynamoDB's limits for one partition key, and its latencies, over one that keeps no
// payloads.
type strict struct {
	*latency.Table // its Store is the one below, without limits and latencies
	notes          *notes
}

// notes notes what messages a payload holds, instead of keeping it.
type notes struct {
	*memmeta.Store

	mu   sync.Mutex // guards held
	held map[string][]uint64
}

// newStrict makes the store. limit is the write units that a partition key has each second.
func newStrict(r memmeta.Reporter, limit float64, seed uint64) *strict {
	n := &notes{Store: memmeta.New(r), held: make(map[string][]uint64)}
	return &strict{Table: latency.NewTable(n, latency.DynamoDB(), limit, latency.NewSource(seed, 1)), notes: n}
}

// Apply implements meta.Store.
func (n *notes) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if p, ok := op.(meta.Put); ok {
		if payload, ok := p.Record.(*meta.Payload); ok {
			n.note(payload)
			return meta.Result{}, nil
		}
	}
	return n.Store.Apply(ctx, op)
}

// note notes what messages a payload holds.
func (n *notes) note(p *meta.Payload) {
	var held []uint64
	r, err := batch.Open(p.Data)
	if err != nil {
		panic(fmt.Sprintf("a batch of our own: %v", err))
	}
	var rec batch.Record
	for r.Next(&rec) {
		held = append(held, binary.BigEndian.Uint64(rec.Body))
		if rec.Body[len(rec.Body)-1] == alike {
			break // the others follow
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[p.ID] = held
}
