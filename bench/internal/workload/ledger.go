package workload

import "sync/atomic"

// ledger knows which messages were sent and which of them each group has received. Safe for concurrent use.
type ledger struct {
	limit int64
	// next is the next number to give; acknowledged counts messages whose Send came back, done those whose
	// Receive did.
	next, acknowledged, done atomic.Int64
	groups                   []received
}

// received is what one group has received: a bit for each number.
type received struct {
	bits                             []atomic.Uint64
	distinct, twice, corrupt, unsent atomic.Int64
}

func newLedger(limit int64, groups int) *ledger {
	l := &ledger{limit: limit, groups: make([]received, groups)}
	for i := range l.groups {
		l.groups[i].bits = make([]atomic.Uint64, limit/64+1)
	}
	return l
}

// reserve gives up to n numbers, from first on; none at the limit.
func (l *ledger) reserve(n int64) (first, got int64) {
	first = l.next.Add(n) - n
	return first, max(0, min(n, l.limit-first))
}

// add notes that a group has received a body; ok is false if it is none of ours.
func (l *ledger) add(group int, number uint64, ok bool) {
	r := &l.groups[group]
	switch {
	case !ok:
		r.corrupt.Add(1)
	case number >= uint64(min(l.next.Load(), l.limit)):
		r.unsent.Add(1)
	default:
		bit := uint64(1) << (number % 64)
		if r.bits[number/64].Or(bit)&bit != 0 {
			r.twice.Add(1)
			return
		}
		r.distinct.Add(1)
	}
}

// got is how many different messages all groups have together.
func (l *ledger) got() int64 {
	var n int64
	for i := range l.groups {
		n += l.groups[i].distinct.Load()
	}
	return n
}

// wanted is how many that should be: what was acknowledged, for each group.
func (l *ledger) wanted() int64 { return l.acknowledged.Load() * int64(len(l.groups)) }

// settled reports whether every group has every message, and all that was handed out is acknowledged.
func (l *ledger) settled() bool {
	if l.got() < l.wanted() {
		return false
	}
	twice, corrupt := l.faults()
	return l.done.Load() >= l.got()+twice+corrupt
}

// faults counts what came twice, and what was damaged or never sent.
func (l *ledger) faults() (twice, corrupt int64) {
	for i := range l.groups {
		twice += l.groups[i].twice.Load()
		corrupt += l.groups[i].corrupt.Load() + l.groups[i].unsent.Load()
	}
	return twice, corrupt
}
