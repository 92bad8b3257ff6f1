package segment

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
)

const (
	// maxGap is how many bytes between two batches are read and thrown away rather than asked around.
	maxGap = 64 << 10
	// maxTogether bounds the reads of one call that are under way at once.
	maxTogether = 8
)

// Prefetch reads the batches of refs that lie near each other in one object together, for Data to find them
// in the cache: a compactor puts the small batches of many commits into one object, one after the other, and
// history would else be read by one request for each commit. It is worth the bytes where more than one of them
// is wanted; what it cannot read is left to Data, which tells why.
func (l *Log) Prefetch(ctx context.Context, refs []*meta.Ref) {
	var wanted []*meta.Ref
	for _, r := range refs {
		if r.Kind != meta.RefBatch || r.Inline || r.Len > wholeBatchBytes {
			continue
		}
		if _, ok := l.cache.bytes(cacheKey(r, 'd')); !ok {
			wanted = append(wanted, r)
		}
	}
	slices.SortFunc(wanted, func(a, b *meta.Ref) int {
		if c := strings.Compare(a.Object, b.Object); c != 0 {
			return c
		}
		return int(max(-1, min(1, a.Pos-b.Pos)))
	})
	var wg sync.WaitGroup
	turn := make(chan struct{}, maxTogether)
	for len(wanted) > 0 {
		n := near(wanted)
		if n > 1 {
			some := wanted[:n]
			turn <- struct{}{}
			wg.Go(func() {
				defer func() { <-turn }()
				l.together(ctx, some)
			})
		}
		wanted = wanted[n:]
	}
	wg.Wait()
}

// near counts the refs from the first on that are worth one read.
func near(refs []*meta.Ref) int {
	first := refs[0]
	end := first.Pos + first.Len
	for n, r := range refs[1:] {
		if r.Object != first.Object || r.Pos > end+maxGap || max(end, r.Pos+r.Len)-first.Pos > wholeBatchBytes {
			return n + 1
		}
		end = max(end, r.Pos+r.Len)
	}
	return len(refs)
}

// together fetches refs, which ascend in one object, and caches a copy of each: one that stays longer than the
// others must not hold all of their bytes.
func (l *Log) together(ctx context.Context, refs []*meta.Ref) {
	from, end := refs[0].Pos, refs[0].Pos
	for _, r := range refs {
		end = max(end, r.Pos+r.Len)
	}
	data, err := l.blob.Get(ctx, refs[0].Object, blob.Span{Pos: from, Len: end - from}, nil)
	if err != nil || int64(len(data)) < end-from {
		return
	}
	for _, r := range refs {
		own := bytes.Clone(data[r.Pos-from : r.Pos-from+r.Len])
		if verify(r, own) == nil {
			l.cache.putBytes(cacheKey(r, 'd'), own)
		}
	}
}
