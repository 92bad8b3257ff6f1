package delay

import (
	"context"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// place is where a delayed message stands.
type place struct {
	entry   *meta.Delayed
	version meta.Version
	// index is the message's in the entry.
	index uint32
}

// find looks a message up by its home id: in the entry that the id names, and, if it is gone from
// there, behind the forward. In that order nothing slips through: the transaction that takes a message
// out of its first entry puts the forward. A forward that leads nowhere has just been overtaken by
// another edit, by a promotion or a cancellation, and is read again.
//
// Errors: Conflict with CodeAlreadyPromoted, NotFound with CodeDelayedNotFound; the store's.
func (s *Service) find(ctx context.Context, m *topics.Map, id queue.DelayedID) (place, error) {
	first, version, err := fetch(ctx, s.Meta, meta.DelayedKey(m.ID(), shard, id.Visible, id.Entry))
	switch {
	case err != nil:
		return place{}, err
	case first == nil:
	case first.Home != nil, int(id.Index) >= len(first.Slots):
		// The place of an edited message is no id, nor is one past the end.
		return place{}, unknownID(id)
	case !isGone(first, id.Index):
		return place{first, version, id.Index}, nil
	}
	for range maxTries {
		f, _, err := meta.Fetch[*meta.Forward](ctx, s.Meta, meta.ForwardKey(m.ID(), id))
		switch {
		case queue.Is(err, queue.KindNotFound):
			if id.Visible <= s.Clock.Millis() {
				return place{}, alreadyPromoted(id)
			}
			return place{}, unknownID(id)
		case err != nil:
			return place{}, err
		case f.Entry == "":
			return place{}, alreadyPromoted(id)
		}
		moved, version, err := fetch(ctx, s.Meta, meta.DelayedKey(m.ID(), shard, f.Visible, f.Entry))
		if err != nil {
			return place{}, err
		}
		if moved != nil && !isGone(moved, 0) { // else it has just been moved on
			return place{moved, version, 0}, nil
		}
	}
	return place{}, tooBusy("find delayed message", id.String(), nil)
}

// fetch reads an entry; nil if there is none.
func fetch(ctx context.Context, store meta.Store, key meta.Key) (*meta.Delayed, meta.Version, error) {
	d, version, err := meta.Fetch[*meta.Delayed](ctx, store, key)
	if queue.Is(err, queue.KindNotFound) {
		return nil, 0, nil
	}
	return d, version, err
}

func isGone(d *meta.Delayed, i uint32) bool {
	_, found := slices.BinarySearch(d.Gone, i)
	return found
}

func alreadyPromoted(id queue.DelayedID) error {
	return &queue.Error{
		Op: "find delayed message", Subject: id.String(), Kind: queue.KindConflict, Code: queue.CodeAlreadyPromoted,
		Message: "the message no longer waits: it was promoted, or it was cancelled or had expired before",
	}
}

func unknownID(id queue.DelayedID) error {
	return &queue.Error{
		Op: "find delayed message", Subject: id.String(), Kind: queue.KindNotFound, Code: queue.CodeDelayedNotFound,
		Message: "no delayed message has that id, or it was cancelled",
	}
}
