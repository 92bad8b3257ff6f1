package produce

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Tries of one call of a producer may find the topic a normal one and a delayed one: it was changed between
// them, or one of them goes by a map from a cache. Requests of both may be on their way. One of the two kinds
// must win, for all of the call's messages (docs/decisions/0013):
//
//   - A try that puts entries in the delayed index voids the call's sequence, in the same transaction, in
//     each head that it would go to on a normal topic. An append that is in refuses the transaction; one
//     that comes later is refused and goes by the attempt record, where the entries are noted.
//   - A try that appends claims the attempt record first, if entries may have been put or may be on their
//     way: their transaction asks for the version that it read, and is void.
//
// Neither is needed, and neither costs anything, but for the time in which a topic was changed lately. Before
// a topic becomes delayed for the first time nobody claims, and all who know of the change void. A try
// that knows only of a time in which the topic was delayed does not void, and all who know of the change claim.

// switchWindow is how long after a change tries that do not know of it may take effect: the change itself may
// have been on its way for as long as a request lives, and then a client tries again for a producer's window.
const switchWindow = 2*queue.ProducerWindow + 2*queue.ClockSlack

// maxClaims bounds how often a try reads the attempt record as another one has changed it.
const maxClaims = 3

// switching is a producer's call on a topic that was changed lately.
type switching struct {
	// begun: the attempt record is this call's, by an earlier try or this one.
	begun bool
	// rivals are the parts that the call would append on a normal topic; none if nothing is to be voided.
	rivals []part
	// voided: a head has told that another try has put the call in the delayed index.
	voided atomic.Bool
}

// errNormal says that an earlier try found a normal topic, and that what it appended is in.
var errNormal = errors.New("an earlier try went to segments")

// switchedLately reports whether another try may have found the topic delayed where this one did not, or
// the other way round.
func (c *call) switchedLately() bool {
	at := c.topic.Topic.Switched
	return at != 0 && c.Clock.Millis() < at.Add(switchWindow)
}

// beginProducer reads what a producer last put in the delayed index, and claims its record if need be.
func (c *call) beginProducer(ctx context.Context) error {
	for range maxClaims {
		if err := c.readProducer(ctx); err != nil {
			return err
		}
		g := c.guard
		if g.begun || c.times.DefaultDelay > 0 || !c.switchedLately() {
			return nil
		}
		next := *g.attempt
		next.Expires = c.created.Add(queue.ProducerWindow + queue.ClockSlack)
		err := g.write(ctx, c, &next, nil)
		if _, refused := meta.AsRefused(err); !refused {
			return err
		}
	}
	return underWay(c.topic.Name, nil)
}

// readProducer reads the attempt record of a producer. A call that it is of goes by the times that it has.
func (c *call) readProducer(ctx context.Context) error {
	g := c.guard
	tok := token("p-", g.producer)
	last, version, err := meta.Fetch[*meta.Attempt](ctx, c.Meta, meta.AttemptKey(c.topic.ID(), tok))
	switch {
	case queue.Is(err, queue.KindNotFound):
		version = 0
	case err != nil:
		return err
	case last.Sequence > g.sequence:
		return &queue.Error{
			Op: "produce", Subject: c.topic.Name, Kind: queue.KindConflict, Code: queue.CodeSequenceOutOfOrder,
			Field: "producer.sequence", Limit: last.Sequence, Message: "the producer's sequence is older than its last one",
		}
	}
	g.version = version
	if g.begun = last != nil && last.Sequence == g.sequence; g.begun {
		g.attempt = last
		c.created, c.times = last.Created, last.Times
		return nil
	}
	g.attempt = &meta.Attempt{Topic: c.topic.ID(), Token: tok, Sequence: g.sequence, Nonce: c.nonce, Created: c.created, Times: c.times}
	return nil
}

// planRivals works out what a try on a normal topic would append where, if there may be one.
func (c *call) planRivals(plan func(*call) error) error {
	g := c.guard
	if g == nil {
		return nil
	}
	g.rivals = nil
	if !c.delayed || g.producer == "" || len(g.attempt.Delayed) > 0 || !c.switchedLately() {
		return nil
	}
	other := *c
	other.units, other.object, other.results = nil, nil, nil
	other.times.DefaultDelay = 0
	if err := plan(&other); err != nil {
		return err
	}
	g.rivals, _ = other.destinations()
	return nil
}

// wasNormal reports whether an earlier try found a normal topic and what it appended is in a segment that was
// split or merged since; of the others the heads themselves tell. The call is then to be planned anew.
func (c *call) wasNormal(ctx context.Context) (bool, error) {
	if c.guard == nil || len(c.guard.rivals) == 0 {
		return false, nil
	}
	horizon, _ := c.horizon()
	for _, sh := range c.shares(c.guard.rivals) {
		for _, old := range c.ancestors(sh.segment, horizon) {
			head, err := c.Log.Last(ctx, old.ID)
			if err != nil {
				return false, err
			}
			if landed, _ := c.fate(head); landed {
				c.times.DefaultDelay = 0
				return true, nil
			}
		}
	}
	return false, nil
}

// fate says what a head knows of the call's appends on a normal topic.
func (c *call) fate(head *meta.Head) (landed, voided bool) {
	for i := range head.Producers {
		p := &head.Producers[i]
		rest, ours := strings.CutPrefix(p.ID, c.guard.producer)
		if n, err := strconv.Atoi(strings.TrimPrefix(rest, "/")); !ours || rest != "" && (err != nil || shareName("", n) != rest) {
			continue
		}
		landed = landed || p.Sequence >= c.guard.sequence && !p.Voided()
		voided = voided || p.Sequence == c.guard.sequence && p.Voided()
	}
	return landed, voided
}

// voidedIn reports whether what the call is about to append is void by what a sealed head says.
func (c *call) voidedIn(head *meta.Head) bool {
	_, voided := c.fate(head)
	return voided && !c.delayed
}

// voids are the ops that make void what the call may append on a normal topic.
func (c *call) voids() ([]meta.Op, error) {
	if c.guard == nil || len(c.guard.rivals) == 0 {
		return nil, nil
	}
	var voids []meta.Void
	for _, sh := range c.shares(c.guard.rivals) {
		if n := len(voids); n == 0 || voids[n-1].Segment != sh.segment.ID {
			voids = append(voids, meta.Void{
				Segment: sh.segment.ID, Epoch: sh.segment.Epoch, Number: c.guard.sequence, At: c.created,
			})
		}
		v := &voids[len(voids)-1]
		v.IDs = append(v.IDs, shareName(c.guard.producer, sh.number))
	}
	ops := make([]meta.Op, len(voids))
	for i, v := range voids {
		if len(v.IDs) > meta.MaxVoidIDs {
			return nil, tooWide(c.topic.Name)
		}
		ops[i] = v
	}
	if len(ops) > maxEntriesPerWrite-1 {
		return nil, tooWide(c.topic.Name)
	}
	return ops, nil
}

// room is how many entries go in one transaction.
func (c *call) room() (int, error) {
	voids, err := c.voids()
	return maxEntriesPerWrite - len(voids), err
}

// tooWide refuses a call of which one transaction cannot void all.
func tooWide(topic string) error {
	return &queue.Error{
		Op: "produce", Subject: topic, Kind: queue.KindUnavailable, RetryAfter: time.Minute,
		Message: "default_delay was changed in the last half hour, and the call reaches too many segments to be safe to repeat until then",
	}
}

// notVoided deals with a head that refused to void the call's sequence; nil asks for another try.
func (c *call) notVoided(ctx context.Context, r *meta.Refused) error {
	switch r.Reason {
	case meta.ReasonSequence:
		if head, ok := r.Current.Record.(*meta.Head); ok {
			if landed, _ := c.fate(head); landed {
				c.times.DefaultDelay = 0
				return errNormal
			}
		}
		return underWay(c.topic.Name, r)
	case meta.ReasonProducers:
		head, ok := r.Current.Record.(*meta.Head)
		if !ok {
			return r
		}
		return c.Log.ForgetIdle(ctx, head)
	case meta.ReasonSealed, meta.ReasonEpoch, meta.ReasonAbsent:
		if err := c.reroute(ctx); err != nil {
			return err
		}
		if normal, err := c.wasNormal(ctx); err != nil {
			return err
		} else if normal {
			return errNormal
		}
		return nil
	default:
		return r
	}
}

// isVoided notes, and says, that another try has put the call in the delayed index.
func (c *call) isVoided() error {
	c.guard.voided.Store(true)
	return underWay(c.topic.Name, nil)
}

// follow goes by the attempt record, after a head has told that another try has put the call's entries. What
// this try was to append is void in all heads alike.
func (c *call) follow(ctx context.Context) error {
	c.guard.voided.Store(false)
	if err := c.readProducer(ctx); err != nil {
		return err
	}
	if len(c.guard.attempt.Delayed) == 0 {
		return usedBefore(c.topic.Name) // so long ago that the record is gone
	}
	return nil
}
