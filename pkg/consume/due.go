package consume

import (
	"cmp"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// due is a retry whose time has come, or the expired parts of a claim.
type due struct {
	// at is since when.
	at     queue.Millis
	ranges []meta.OffsetRange
	count  int
	// attempts is how often the messages were delivered.
	attempts uint32
	// claim is set for an expired claim, retry for a retry.
	claim *meta.Claim
	retry *meta.Retry
}

// dueOf lists what is due in a cursor at now, oldest first, and says when the next thing will be; 0 if
// nothing will.
func dueOf(cur *meta.Cursor, now queue.Millis) (list []due, next queue.Millis) {
	wake := func(at queue.Millis) {
		if next == 0 || at < next {
			next = at
		}
	}
	for _, cl := range cur.Claims {
		d := due{claim: &cl, attempts: cl.Attempt}
		for _, p := range cl.Parts {
			if p.Expires > now {
				wake(p.Expires)
				continue
			}
			if d.at == 0 || p.Expires < d.at {
				d.at = p.Expires
			}
			d.ranges = appendRange(d.ranges, p.OffsetRange)
			d.count += p.Len()
		}
		if d.count > 0 {
			list = append(list, d)
		}
	}
	for i := range cur.Retries {
		r := &cur.Retries[i]
		if r.NotBefore > now {
			wake(r.NotBefore)
			continue
		}
		list = append(list, due{
			at: r.NotBefore, ranges: []meta.OffsetRange{r.OffsetRange}, count: r.Len(),
			attempts: r.Attempts, retry: r,
		})
	}
	slices.SortFunc(list, func(a, b due) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.ranges[0].Lo, b.ranges[0].Lo))
	})
	return list, next
}

// appendRange adds r to ascending ranges, joined to its neighbour.
func appendRange(ranges []meta.OffsetRange, r meta.OffsetRange) []meta.OffsetRange {
	if n := len(ranges); n > 0 && ranges[n-1].Hi == r.Lo {
		ranges[n-1].Hi = r.Hi
		return ranges
	}
	return append(ranges, r)
}

// spent reports whether messages of that many deliveries go to the dead-letter topic in place of
// another one.
func spent(sub *meta.Subscription, attempts uint32) bool {
	return buries(sub) && int64(attempts) >= int64(sub.MaxDeliveries)
}

func buries(sub *meta.Subscription) bool { return sub.MaxDeliveries > 0 && sub.DeadLetterTopic != "" }

// alone reports whether d's messages must not meet others of the run that they were delivered in.
// Released messages are not: the consumer said of them that they failed. Nor is a claim of the first
// delivery: all of its run is in it.
func (d *due) alone() bool {
	if d.retry != nil {
		return d.retry.Alone
	}
	return d.attempts > 1
}

// piece is how many of d's messages may be delivered together.
func (d *due) piece(sub *meta.Subscription) int {
	last := buries(sub) && int64(d.attempts)+1 >= int64(sub.MaxDeliveries)
	switch {
	case d.count == 1, d.retry != nil && !d.retry.Alone:
		return d.count
	case d.attempts > 1 || last:
		return 1
	case d.claim != nil:
		return d.count / 2
	default:
		return d.count // what remained of a first run was cut into halves when it was put back
	}
}

// use marks d as used up by take; what of a claim has not expired stays.
func (d *due) use(take *meta.Take, now queue.Millis) {
	if d.retry != nil {
		take.DropRetries = append(take.DropRetries, *d.retry)
		return
	}
	take.Drop = append(take.Drop, *d.claim)
	live := meta.Claim{ID: d.claim.ID, Attempt: d.claim.Attempt}
	for _, p := range d.claim.Parts {
		if p.Expires > now {
			live.Parts = append(live.Parts, p)
		}
	}
	if len(live.Parts) > 0 {
		take.Add = append(take.Add, live)
	}
}

// back is the retry that d's messages become if they are put back as they were; its range is the
// caller's.
func (d *due) back() meta.Retry {
	if d.retry != nil {
		return *d.retry
	}
	return meta.Retry{Attempts: d.attempts, NotBefore: d.at, Alone: true}
}

// rest makes retries of what of d was not taken. Of a run that was delivered once they are no longer
// than half of it, so that its second delivery is at most that.
func (d *due) rest(ranges []meta.OffsetRange) []meta.Retry {
	most := d.count
	if d.claim != nil && d.attempts == 1 {
		most = max(1, d.count/2)
	}
	var out []meta.Retry
	for _, r := range ranges {
		for r.Lo < r.Hi {
			retry := d.back()
			retry.OffsetRange = meta.OffsetRange{Lo: r.Lo, Hi: min(r.Hi, r.Lo+queue.Offset(most))} // #nosec G115 -- positive
			out = append(out, retry)
			r.Lo = retry.Hi
		}
	}
	return out
}
