package consume

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// keyIn is a key in a segment.
type keyIn struct {
	seg queue.SegmentID
	key keyHash
}

// withhold takes out of an answer what comes after a message of its key that could not be read: it waits
// for that one, as if it had not been claimed.
func withhold(all []*fetched) {
	first := make(map[keyIn]queue.Offset)
	miss := func(r *run, from, to queue.Offset) {
		for off := from; off < to; off++ {
			at := keyIn{r.seg, r.keys[off-r.Lo]}
			if old, ok := first[at]; at.key != noKey && (!ok || off < old) {
				first[at] = off
			}
		}
	}
	for _, f := range all {
		for _, bad := range f.bad {
			miss(f.run, bad.Lo, bad.Hi)
		}
		if f.err != nil {
			miss(f.run, f.run.Lo, f.run.Hi)
		}
	}
	if len(first) == 0 {
		return
	}
	for _, f := range all {
		var out []Delivery
		for i := range f.out {
			d := &f.out[i]
			from := 0
			for j := range d.Count {
				off := d.Offset + queue.Offset(j) // #nosec G115 -- not negative
				missed, ok := first[keyIn{f.run.seg, f.run.keys[off-f.run.Lo]}]
				if !ok || off < missed {
					continue
				}
				out = d.part(out, from, j)
				from = j + 1
				f.withheld = appendRange(f.withheld, meta.OffsetRange{Lo: off, Hi: off + 1})
			}
			out = d.part(out, from, d.Count)
		}
		f.out = out
	}
}

// sortByOffset puts an answer in the order of offsets, segment by segment.
func sortByOffset(ds []Delivery) {
	slices.SortFunc(ds, func(a, b Delivery) int {
		return cmp.Or(strings.Compare(string(a.Segment), string(b.Segment)), cmp.Compare(a.Offset, b.Offset))
	})
}
