package meta

import "github.com/spillway-mq/spillway/pkg/queue"

// Void makes every append of a producer's sequence void that has not reached the head by now, however
// late it arrives: the head remembers the sequence, for no message. It is refused, in this order, if the
// head is absent, sealed or of another epoch, if a sequence is not new, as the append or a later one is
// in, or if too many producers are remembered. In a transaction with what is put elsewhere instead it
// lets only one of the two happen (docs/decisions/0013).
type Void struct {
	Segment queue.SegmentID
	Epoch   queue.Epoch
	// IDs are the 1 to MaxVoidIDs names under which the producer appends, none twice.
	IDs    []string
	Number uint64
	// At is the time from which on the producers count as idle.
	At queue.Millis
}

// MaxVoidIDs bounds the names of one Void: an expression of DynamoDB holds 4 KB.
const MaxVoidIDs = 16

// Target implements Op.
func (v Void) Target() Key { return HeadKey(v.Segment) }

// Name implements Op.
func (v Void) Name() string { return "void" }

// Change implements Op.
func (v Void) Change(cur *Item) (*Item, Result, error) {
	h, err := headOf(v, cur)
	if err != nil {
		return nil, Result{}, err
	}
	if reason := v.check(h); reason != 0 {
		return nil, Result{}, refuse(v, cur, reason)
	}
	n := *h
	for _, id := range v.IDs {
		n.Producers = n.Producers.With(id, ProducerState{Sequence: v.Number, First: h.Next, At: v.At})
	}
	next := &Item{Record: &n, Version: cur.Version}
	return next, Result{Item: *next}, nil
}

func (v Void) check(h *Head) Reason {
	switch {
	case h.Sealed:
		return ReasonSealed
	case h.Epoch != v.Epoch:
		return ReasonEpoch
	}
	fresh := 0
	for _, id := range v.IDs {
		last, known := h.Producers.Get(id)
		if known && v.Number <= last.Sequence {
			return ReasonSequence
		}
		if !known {
			fresh++
		}
	}
	if fresh > 0 && len(h.Producers)+len(v.IDs) > queue.MaxHeadProducers {
		return ReasonProducers
	}
	return 0
}

// validate refuses what is wrong whatever the head holds.
func (v Void) validate() error {
	if n := len(v.IDs); n == 0 || n > MaxVoidIDs {
		return queue.Invalid("ids", MaxVoidIDs, "has %d, not 1 to %d", n, MaxVoidIDs)
	}
	seen := make(map[string]bool, len(v.IDs))
	for _, id := range v.IDs {
		if err := queue.ValidateToken("producer", id, MaxSequenceIDBytes); err != nil {
			return err
		}
		if seen[id] {
			return queue.Invalid("ids", nil, "holds one name twice")
		}
		seen[id] = true
	}
	return nil
}

// Voided reports whether a Void is what the head remembers last of a producer.
func (p ProducerState) Voided() bool { return p.Count == 0 }
