package delay

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Promote moves everything of a topic that is due at now into its segments, in order of visible time,
// and wakes those who wait for messages of the topic. What has expired is removed instead. next is the
// visible time of the first message that still waits, 0 if none does: when to promote again. promoted
// counts messages. It is exact unless answers were lost or others promote too: then it may miss some,
// or count theirs, and calls of one process that were served together all get the count.
//
// A topic that is not delayed, and was not lately, costs no store call. Where nothing is due it costs
// one query of a few records; what is due costs further queries and one transaction for each chunk.
//
// Errors: Throttled, Unavailable and Conflict say that something due may still wait, and that the
// next call goes on from there; NotFound that the topic was deleted; Corrupt that an entry cannot be
// promoted, after all others were.
func (s *Service) Promote(ctx context.Context, m *topics.Map, now queue.Millis) (promoted int, next queue.Millis, err error) {
	if !m.Topic.Promotes(now) {
		return 0, 0, nil
	}
	return s.together(ctx, m, now)
}

// promotion is one run over a topic's index.
type promotion struct {
	service *Service
	m       *topics.Map
	now     queue.Millis
	outcome
	// bad collects errors of entries that were passed over.
	bad []error
}

// errAgain asks for the index to be read anew.
var errAgain = errors.New("read the index again")

func (p *promotion) run(ctx context.Context) error {
	q := meta.Range{PK: meta.DelayedPK(p.m.ID(), shard), To: meta.DelayedEnd, Limit: firstLook}
	again := 0
	for {
		page, err := p.service.Meta.Query(ctx, q)
		if err != nil {
			return err
		}
		due, next := p.split(page.Items)
		before := p.outcome.promoted
		switch err := p.entries(ctx, due); {
		case errors.Is(err, errAgain):
			// From the same place: what is done is gone from there.
			if again++; p.outcome.promoted > before {
				again = 0
			}
			if again > maxTries {
				return tooBusy("promote", p.m.Name, err)
			}
			if err := p.service.pause(ctx, again); err != nil {
				return err
			}
			continue
		case err != nil:
			return errors.Join(append(p.bad, err)...)
		}
		if next != 0 || !page.More {
			p.next = next
			return errors.Join(p.bad...)
		}
		q.From = meta.After(page.Items[len(page.Items)-1].Record.Key().SK)
		q.Limit = fullLook
	}
}

// split parts what is due from what waits; items are in order of visible time.
func (p *promotion) split(items []meta.Item) (due []*waiting, next queue.Millis) {
	for _, item := range items {
		d, ok := item.Record.(*meta.Delayed)
		if !ok {
			p.bad = append(p.bad, corrupt(item.Record.Key(), "a record of another kind is in the index"))
			continue
		}
		if d.Visible > p.now {
			if len(d.Gone) >= len(d.Slots) {
				continue // a husk: nobody waits for it
			}
			return due, d.Visible
		}
		if len(d.Slots) != int(d.Ref.Count) {
			p.bad = append(p.bad, corrupt(d.Key(), "the entry has not one slot for each message"))
			continue
		}
		due = append(due, &waiting{entry: d, version: item.Version})
	}
	return due, 0
}

func corrupt(key meta.Key, message string) error {
	return &queue.Error{Op: "promote", Subject: key.String(), Kind: queue.KindCorrupt, Message: message}
}

// entries promotes what is due, chunk by chunk.
func (p *promotion) entries(ctx context.Context, due []*waiting) error {
	tries := 0
	for len(due) > 0 {
		if len(p.m.Open) == 0 {
			return &queue.Error{Op: "promote", Subject: p.m.Name, Kind: queue.KindSealed, Message: "the topic has no open segment"}
		}
		c := p.plan(due)
		results, err := p.service.Meta.Transact(ctx, c.ops)
		if err == nil {
			due = p.promoted(ctx, c, results, due)
			tries = 0
			continue
		}
		if tries++; tries > maxTries {
			return tooBusy("promote", p.m.Name, err)
		}
		if due, err = p.failed(ctx, c, due, err); err != nil {
			return err
		}
		if tries > 1 {
			if err := p.service.pause(ctx, tries-2); err != nil {
				return err
			}
		}
	}
	return nil
}

// promoted takes note of a chunk's success and gives what is left.
func (p *promotion) promoted(ctx context.Context, c *chunk, results []meta.Result, due []*waiting) []*waiting {
	p.count(c)
	p.service.Log.Appended(ctx, results)
	for i := range results {
		if head, ok := results[i].Item.Record.(*meta.Head); ok {
			p.service.Topics.Observe(ctx, p.m, head, false)
		}
	}
	due = due[c.entries:]
	if c.rest != nil {
		due = append([]*waiting{c.rest}, due...)
	}
	return due
}

func (p *promotion) count(c *chunk) {
	p.outcome.promoted += c.messages
	if c.messages > 0 {
		p.service.Hub.Signal(p.m.ID())
	}
}

// failed finds out why a chunk was not promoted, and puts in order what is in the way. It gives what
// to go on with, or an error that ends the run.
func (p *promotion) failed(ctx context.Context, c *chunk, due []*waiting, err error) ([]*waiting, error) {
	if r, ok := meta.AsRefused(err); ok {
		return p.refused(ctx, c, due, r)
	}
	switch queue.KindOf(err) {
	case queue.KindOutcomeUnknown:
		// All or nothing, so the first entry tells. It may also be gone by another's work, with
		// the chunk's other entries still there: the index is read again in any case.
		first := due[0]
		item, gerr := p.service.Meta.Get(ctx, first.entry.Key())
		switch {
		case queue.Is(gerr, queue.KindNotFound), gerr == nil && c.rest != nil && item.Version == c.rest.version:
			p.count(c)
		case gerr != nil:
			return nil, gerr
		}
		return nil, errAgain
	case queue.KindThrottled, queue.KindUnavailable, queue.KindConflict:
		return due, nil
	default:
		return nil, err
	}
}

func (p *promotion) refused(ctx context.Context, c *chunk, due []*waiting, r *meta.Refused) ([]*waiting, error) {
	if r.Index < c.marks {
		// An editor, a canceller or another promoter was faster; or the store's client repeated
		// our own transaction. Where that was a promotion, our waiters want to know.
		switch {
		case r.Current == nil:
			p.service.Hub.Signal(p.m.ID())
		case c.rest != nil && r.Current.Version == c.rest.version:
			p.count(c)
		}
		return nil, errAgain
	}
	switch r.Reason {
	case meta.ReasonTailFull:
		if h, ok := r.Current.Record.(*meta.Head); ok {
			if err := p.service.Log.Roll(ctx, h); err != nil && !queue.Retryable(err) {
				return nil, err
			}
		}
		return due, nil
	case meta.ReasonSealed, meta.ReasonEpoch, meta.ReasonAbsent:
		m, err := p.service.Topics.Reload(ctx, p.m.Name)
		if err != nil {
			return nil, err
		}
		if m.ID() != p.m.ID() {
			return nil, &queue.Error{
				Op: "promote", Subject: p.m.Name, Kind: queue.KindNotFound, Code: queue.CodeTopicNotFound,
				Message: "the topic was deleted; another has its name now",
			}
		}
		p.m = m
		return due, nil
	default:
		return nil, r
	}
}
