// Package lease is the mechanism of time-bounded ownership: one holder at a time works under a name,
// and whoever lost it changes nothing.
//
// Vocabulary: a keeper takes leases for one process; held is a lease that was taken; a guard is the op
// that goes with every transaction made under it.
//
// Invariants:
//   - Epochs of a name only grow; the record is never deleted, so they never start anew.
//   - A transaction made under a lease (Held.Commit) takes effect only while nobody else has taken it:
//     safety rests on that, and on no clock.
//   - Time is judged by the observer alone, by its own monotonic clock: a lease is taken over once the
//     observer has seen the same version of it for its whole TTL. No two clocks are ever compared.
//   - A holder's trust in its lease begins before the write that got it and ends before its TTL does.
//
// Non-goals: waiting for a lease; fairness; leases on several names at once.
package lease

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// maxTries bounds the store calls of one step.
	maxTries = 6
	// maxSeen bounds the leases of others that a keeper watches; losing one costs its TTL.
	maxSeen = 10_000
	// slack is the part of the TTL by which a holder's trust ends early: 1/slack of it.
	slack = 4
	// leastWait is how long to leave a lease alone at least: its time may be up when a slow read has ended.
	leastWait = time.Millisecond
)

// Keeper takes leases. Safe for concurrent use.
type Keeper struct {
	meta  meta.Store
	ids   *queue.IDs
	clock queue.Clock
	owner string

	mu   sync.Mutex // guards seen
	seen map[string]sighting
}

// sighting is which version of another's lease was seen, and when first.
type sighting struct {
	version meta.Version
	at      time.Time
}

// New makes a keeper. clock must be monotonic, as time.Now is.
func New(store meta.Store, ids *queue.IDs, clock queue.Clock) *Keeper {
	return &Keeper{meta: store, ids: ids, clock: clock, owner: ids.ID(), seen: make(map[string]sighting)}
}

// Acquire takes the lease of a name: one that nobody ever had, that was given up, or that this keeper
// has watched for its whole TTL. It costs a read and a write.
//
// A lease that is made for the first time is made only while what is given holds: so the record of what the lease
// is of can be removed together with the lease, and the lease does not come back.
//
// Errors: Conflict, with RetryAfter, if another holds it; NotFound if what is given does not hold; OutcomeUnknown
// if it may have been taken, or may be yet: then it is nobody's until its TTL is over; the store's.
func (k *Keeper) Acquire(ctx context.Context, name string, ttl time.Duration, given ...meta.Check) (*Held, error) {
	t := taking{keeper: k, name: name, ttl: ttl, tries: make(map[meta.Version]time.Time)}
	var last error
	for range maxTries {
		start := k.clock()
		next := &meta.Lease{Name: name, Owner: k.owner, Epoch: 1, TTL: ttl}
		put := meta.Put{Record: next, If: meta.Absent(), Version: meta.NewVersion(k.ids)}
		old, version, err := meta.Fetch[*meta.Lease](ctx, k.meta, meta.LeaseKey(name))
		switch {
		case queue.Is(err, queue.KindNotFound):
		case err != nil:
			return nil, t.unsure(err)
		default:
			if began, mine := t.tries[version]; mine {
				return t.held(old, version, began), nil // by a write of before, which came late
			}
			if wait := k.watch(old, version, start); wait > 0 {
				// None of our writes can come any more: what each of them asks for is gone.
				return nil, &queue.Error{
					Op: "acquire lease", Subject: name, Kind: queue.KindConflict, RetryAfter: wait,
					Message: "another holds it",
				}
			}
			next.Epoch, next.Value, put.If = old.Epoch+1, old.Value, meta.At(version)
		}
		t.tries[put.Version] = start
		switch err = k.put(ctx, put, old == nil, given); {
		case isRefused(err) && !meta.IsRefused(err, meta.ReasonExists) && old == nil:
			return nil, &queue.Error{Op: "acquire lease", Subject: name, Kind: queue.KindNotFound, Message: "what the lease is of is gone", Err: err}
		case err == nil:
			return t.held(next, put.Version, start), nil
		case queue.Is(err, queue.KindOutcomeUnknown), isRefused(err):
			// It may have been taken by this very write, or by one before it: then that one's version is there.
			t.lost = t.lost || !isRefused(err)
			if mine, got, ferr := meta.Fetch[*meta.Lease](ctx, k.meta, put.Target()); ferr == nil && !t.tries[got].IsZero() {
				return t.held(mine, got, t.tries[got]), nil
			}
		default:
			return nil, t.unsure(err)
		}
		last = err
	}
	return nil, t.unsure(&queue.Error{Op: "acquire lease", Subject: name, Kind: queue.KindConflict, Message: "others keep taking it", Err: last})
}

// taking is one call of Acquire.
type taking struct {
	keeper *Keeper
	name   string
	ttl    time.Duration
	// tries are the versions that it tried to put, and when each try began; lost says that one of them had no answer.
	tries map[meta.Version]time.Time
	lost  bool
}

func (t *taking) held(l *meta.Lease, v meta.Version, began time.Time) *Held {
	return &Held{keeper: t.keeper, lease: l, version: v, until: began.Add(t.ttl - t.ttl/slack)}
}

// unsure is the error of a call that does not know what became of all its writes.
func (t *taking) unsure(err error) error {
	if !t.lost {
		return err
	}
	return &queue.Error{Op: "acquire lease", Subject: t.name, Kind: queue.KindOutcomeUnknown, Err: err}
}

// put takes the lease; one that is made needs what is given.
func (k *Keeper) put(ctx context.Context, put meta.Put, made bool, given []meta.Check) error {
	if !made || len(given) == 0 {
		_, err := k.meta.Apply(ctx, put)
		return err
	}
	ops := []meta.Op{put}
	for _, check := range given {
		ops = append(ops, check)
	}
	_, err := k.meta.Transact(ctx, ops)
	return err
}

// watch says how long the keeper must leave the lease alone; 0 if it may take it. asked is when the read began that
// found it. A version is seen from the end of the first read that finds it, up to the beginning of the last one:
// a read may take long, and what it finds may have been written just before it was answered.
func (k *Keeper) watch(l *meta.Lease, version meta.Version, asked time.Time) time.Duration {
	answered := k.clock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.Free {
		delete(k.seen, l.Name)
		return 0
	}
	s, ok := k.seen[l.Name]
	if !ok || s.version != version {
		if len(k.seen) >= maxSeen {
			clear(k.seen)
		}
		s = sighting{version, answered}
		k.seen[l.Name] = s
	}
	if end := s.at.Add(l.TTL); asked.Before(end) {
		return max(end.Sub(answered), leastWait)
	}
	// It stays seen: a try that had no answer may come while this version is there, so the next one must be made,
	// and not be put off.
	return 0
}

func isRefused(err error) bool {
	_, ok := meta.AsRefused(err)
	return ok
}

// Held is a lease that was taken. Not safe for concurrent use.
type Held struct {
	keeper  *Keeper
	lease   *meta.Lease
	version meta.Version
	until   time.Time
	lost    bool
}

// Epoch is the lease's.
func (h *Held) Epoch() queue.Epoch { return h.lease.Epoch }

// Value is what the last holder left, or the last Commit of this one.
func (h *Held) Value() uint64 { return h.lease.Value }

// Valid reports whether the lease can still be trusted to be held: a holder that finds it is not should
// stop. It asks no store, and what is committed is safe whatever it says.
func (h *Held) Valid() bool { return !h.lost && h.keeper.clock().Before(h.until) }

// Commit carries out ops in one transaction that takes effect only if the lease is still held, renews
// it, and leaves value in it. At most meta.MaxTransactOps-1 ops.
//
// Errors: Fenced if the lease was lost, and then nothing was changed, now or ever after; *meta.Refused
// of one of ops, its Index among them: nothing was changed; Throttled and Unavailable: nothing was
// changed; OutcomeUnknown, after which the lease is not to be used any more.
func (h *Held) Commit(ctx context.Context, value uint64, ops ...meta.Op) error {
	next := *h.lease
	next.Value = value
	return h.commit(ctx, &next, ops)
}

// Release gives the lease up, so that another need not wait for its end. The record stays.
func (h *Held) Release(ctx context.Context) error {
	next := *h.lease
	next.Free = true
	err := h.commit(ctx, &next, nil)
	h.lost = true
	return err
}

func (h *Held) commit(ctx context.Context, next *meta.Lease, ops []meta.Op) error {
	fenced := &queue.Error{Op: "commit under lease", Subject: next.Name, Kind: queue.KindFenced, Message: "the lease was lost"}
	if h.lost {
		return fenced
	}
	// One version for all tries: whichever is carried out, none after it can be.
	guard := meta.Put{Record: next, If: meta.At(h.version), Version: meta.NewVersion(h.keeper.ids)}
	all := append([]meta.Op{guard}, ops...)
	unknown := func(err error) error {
		h.lost = true
		return &queue.Error{Op: "commit under lease", Subject: next.Name, Kind: queue.KindOutcomeUnknown, Err: err}
	}
	var err error
	// unsure: a try had no answer, so that it may be carried out yet, whatever a later one is answered.
	unsure := false
	for range maxTries {
		start := h.keeper.clock()
		if _, err = h.keeper.meta.Transact(ctx, all); err == nil {
			h.renewed(next, guard.Version, start)
			return nil
		}
		refused, isRefusal := meta.AsRefused(err)
		switch {
		case !isRefusal && !queue.Is(err, queue.KindOutcomeUnknown), isRefusal && refused.Index > 0:
			if unsure {
				return unknown(err)
			}
			if isRefusal {
				refused.Index--
			}
			return err
		case !isRefusal:
			unsure = true
		}
		_, have, ferr := meta.Fetch[*meta.Lease](ctx, h.keeper.meta, guard.Target())
		switch {
		case ferr != nil:
			return unknown(err)
		case have == guard.Version: // all or nothing: it was made
			h.renewed(next, have, start)
			return nil
		case have != h.version:
			// Taken over: by then our transaction was either void or made, and then it was made
			// under the lease. Which, only its other records can tell.
			if isRefusal && !unsure {
				h.lost = true
				return fenced
			}
			return unknown(err)
		}
	}
	return unknown(err)
}

func (h *Held) renewed(l *meta.Lease, v meta.Version, start time.Time) {
	h.lease, h.version, h.until = l, v, start.Add(l.TTL-l.TTL/slack)
}
