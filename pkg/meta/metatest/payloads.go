package metatest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// testPayloadLists holds that payload records are found by the time of their ids, each in one shard, in
// order, whatever the length of a page and in both directions.
func testPayloadLists(t *testing.T, h Harness) {
	s := open(t, h)
	const records = 300
	for i := range records {
		p := &meta.Payload{ID: meta.PayloadID(queue.Millis(1000+10*i), fmt.Sprintf("r%d", i)), Data: []byte{1}}
		s.must(meta.Put{Record: p, If: meta.Absent(), Version: 1})
	}
	s.must(meta.Put{Record: &meta.Name{Name: "n"}, Version: 1})
	var want []string
	for i := range records {
		if at := queue.Millis(1000 + 10*i); at >= 1500 && at < 3000 {
			want = append(want, meta.PayloadID(at, fmt.Sprintf("r%d", i)))
		}
	}
	for _, limit := range []int{1, 3, meta.MaxQueryLimit} {
		for _, reverse := range []bool{false, true} {
			var got []string
			full := 0
			for shard := range meta.PayloadShards {
				q := meta.PayloadsOf(shard, 1500, 3000, limit)
				q.Reverse = reverse
				ids := s.all(q)
				sorted := slices.IsSorted(ids)
				if reverse {
					sorted = slices.IsSortedFunc(ids, func(a, b string) int { return strings.Compare(b, a) })
				}
				if !sorted {
					t.Errorf("shard %d gives %v", shard, ids)
				}
				if len(ids) > 0 {
					full++
				}
				got = append(got, ids...)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) || full < meta.PayloadShards/2 {
				t.Errorf("limit %d, reverse %v: %d payloads of %d shards, want %d", limit, reverse, len(got), full, len(want))
			}
		}
	}
	whole := 0
	for shard := range meta.PayloadShards {
		whole += len(s.all(meta.Range{PK: meta.PayloadPK(shard), Limit: 7}))
	}
	if whole != records {
		t.Errorf("all shards hold %d payloads together, want %d", whole, records)
	}
}
