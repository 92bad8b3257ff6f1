package meta

import (
	"cmp"
	"slices"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Producers are the idempotent producers that a head remembers, in ascending order of their ids, none
// twice. A head shares them with the heads after it, so they are never changed: With and Without copy.
// (An ordered list and not a map, because each commit of a producer copies and encodes all of them.)
type Producers []Producer

// Producer is one idempotent producer that a head remembers.
type Producer struct {
	ID string
	ProducerState
}

// ProducerState is what a head remembers of an idempotent producer.
type ProducerState struct {
	Sequence uint64
	// First and Count are the offsets that the last sequence got in this segment.
	First queue.Offset
	Count uint32
	At    queue.Millis
}

// find is the place of id, or where it would be.
func (p Producers) find(id string) (place int, found bool) {
	return slices.BinarySearchFunc(p, id, func(one Producer, id string) int { return cmp.Compare(one.ID, id) })
}

// Get is what is remembered of one producer.
func (p Producers) Get(id string) (ProducerState, bool) {
	if i, found := p.find(id); found {
		return p[i].ProducerState, true
	}
	return ProducerState{}, false
}

// With is p with the state of one producer as given.
func (p Producers) With(id string, state ProducerState) Producers {
	i, found := p.find(id)
	rest := p[i:]
	if found {
		rest = p[i+1:]
	}
	out := make(Producers, 0, i+1+len(rest))
	out = append(append(out, p[:i]...), Producer{id, state})
	return append(out, rest...)
}

// Without is p without those that gone picks; nil if there are none left.
func (p Producers) Without(gone func(*Producer) bool) Producers {
	var out Producers
	for i := range p {
		if !gone(&p[i]) {
			out = append(out, p[i])
		}
	}
	return out
}
