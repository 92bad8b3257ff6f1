package metatest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// all reads a range page by page.
func (s store) all(q meta.Range) (sks []string) {
	s.t.Helper()
	for {
		page, err := s.Query(s.t.Context(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, item := range page.Items {
			if key := item.Record.Key(); key.PK != q.PK {
				s.t.Errorf("a record of partition %q", key.PK)
			}
			sks = append(sks, item.Record.Key().SK)
		}
		if !page.More {
			return sks
		}
		if len(page.Items) == 0 || len(page.Items) > q.Limit {
			s.t.Fatalf("a page of %d items, and more to come", len(page.Items))
		}
		if last := sks[len(sks)-1]; q.Reverse {
			q.To = last
		} else {
			q.From = meta.After(last)
		}
	}
}

func testQuery(t *testing.T, h Harness) {
	s := open(t, h)
	// Partitions that are prefixes of each other must not mix.
	for _, topic := range []queue.TopicID{"t", "ta", "t0", "tt"} {
		for _, id := range []queue.SegmentID{"b", "a", "d", "c", "ab"} {
			s.must(meta.Put{Record: &meta.Segment{Topic: topic, ID: id}, Version: 1})
		}
	}
	for _, tc := range []struct {
		name     string
		from, to string
		want     string
	}{
		{"all", "", "", "a ab b c d"},
		{"from", "segment/b", "", "b c d"},
		{"to is outside", "", "segment/c", "a ab b"},
		{"both", "segment/ab", "segment/d", "ab b c"},
		{"between keys", "segment/aa", "segment/cc", "ab b c"},
		{"after", meta.After("segment/a"), "", "ab b c d"},
		{"empty", "segment/c", "segment/c", ""},
		{"crossed", "segment/d", "segment/a", ""},
		{"above all", "segmentz", "", ""},
		{"prefix", meta.SegmentPrefix, meta.SegmentPrefixEnd, "a ab b c d"},
	} {
		for _, limit := range []int{1, 2, 3, 5, meta.MaxQueryLimit} {
			for _, reverse := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/limit %d/reverse %v", tc.name, limit, reverse), func(t *testing.T) {
					s := store{s.Store, t}
					got := s.all(meta.Range{PK: meta.TopicPK("t"), From: tc.from, To: tc.to, Limit: limit, Reverse: reverse})
					want := strings.Fields(tc.want)
					if reverse {
						slices.Reverse(want)
					}
					for i := range got {
						got[i] = strings.TrimPrefix(got[i], meta.SegmentPrefix)
					}
					if !slices.Equal(got, want) {
						t.Errorf("got %v, want %v", got, want)
					}
				})
			}
		}
	}
	if got := s.all(meta.Range{PK: meta.TopicPK("none"), Limit: 5}); len(got) != 0 {
		t.Errorf("a partition that is not there holds %v", got)
	}
}

func testGetAll(t *testing.T, h Harness) {
	s := open(t, h)
	var keys []meta.Key
	for i := range meta.MaxGetKeys {
		rec := &meta.Segment{Topic: queue.TopicID(fmt.Sprintf("t%d", i%7)), ID: queue.SegmentID(fmt.Sprintf("s%d", i))}
		keys = append(keys, rec.Key())
		if i%3 != 0 {
			s.must(meta.Put{Record: rec, Version: meta.Version(i + 1)})
		}
	}
	s.must(putHead(newHead()))
	keys[9] = meta.HeadKey(segID)
	items, err := s.GetAll(t.Context(), keys)
	if err != nil || len(items) != len(keys) {
		t.Fatalf("%d items, %v", len(items), err)
	}
	for i := range items {
		if one, err := s.Get(t.Context(), keys[i]); err == nil {
			s.sameItem("the answer", &items[i], &one)
		} else if items[i].Record != nil {
			t.Errorf("key %d: found %+v, where there is none", i, items[i].Record)
		}
	}
	for name, keys := range map[string][]meta.Key{
		"none": nil, "too many": append(keys, meta.HeadKey("more")), "one twice": {keys[1], keys[2], keys[1]},
		"malformed": {keys[1], {PK: "a", SK: ""}},
	} {
		if _, err := s.GetAll(t.Context(), keys); !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.GetAll(ctx, keys); !queue.Is(err, queue.KindCanceled) {
		t.Errorf("canceled: %v", err)
	}
}

// testQueryPages reads more bytes than a store gives in one page.
func testQueryPages(t *testing.T, h Harness) {
	s := open(t, h)
	const records = 20
	for i := range records {
		s.must(meta.Put{Record: &meta.Subscription{
			Topic: topID, Name: fmt.Sprintf("s%02d", i), DeadLetterTopic: strings.Repeat("x", 300<<10),
		}, Version: 1})
	}
	for _, reverse := range []bool{false, true} {
		if got := s.all(meta.Range{PK: meta.TopicPK(topID), Limit: records, Reverse: reverse}); len(got) != records {
			t.Errorf("reverse %v: got %d records", reverse, len(got))
		}
	}
}

// testQueryHelpers holds the ranges that the contract makes against the keys that it makes.
func testQueryHelpers(t *testing.T, h Harness) {
	s := open(t, h)
	s.must(putHead(newHead()))
	for _, first := range []queue.Offset{0, 9, 10, 255, 256, 1 << 40} {
		s.must(meta.Put{Record: &meta.RefPage{Segment: segID, First: first, Refs: []meta.Ref{ref(uint64(first), 1)}}, Version: 1})
	}
	for off, want := range map[queue.Offset]queue.Offset{0: 0, 8: 0, 9: 9, 10: 10, 254: 10, 256: 256, 1 << 41: 1 << 40} {
		page, err := s.Query(t.Context(), meta.PageAt(segID, off))
		if err != nil || len(page.Items) != 1 || page.Items[0].Record.(*meta.RefPage).First != want {
			t.Errorf("the page at %d is %+v, %v; want that of %d", off, page, err, want)
		}
	}
	if got := s.all(meta.PagesFrom(segID, 10, 2)); len(got) != 4 {
		t.Errorf("pages from 10 are %v", got)
	}
	for _, visible := range []queue.Millis{1, 999, 1000, 1 << 44} {
		s.must(meta.Put{Record: &meta.Delayed{Topic: topID, Visible: visible, ID: "e", Ref: ref(1, 1)}, Version: 1})
	}
	due := s.all(meta.Range{PK: meta.DelayedPK(topID, 0), To: meta.DelayedSK(1000, ""), Limit: 10})
	if len(due) != 2 {
		t.Errorf("what is visible before 1000 is %v", due)
	}
	if rest := s.all(meta.Range{PK: meta.DelayedPK(topID, 0), From: meta.DelayedSK(1000, ""), To: meta.DelayedEnd, Limit: 10}); len(rest) != 2 {
		t.Errorf("what is visible at 1000 or later is %v", rest)
	}
}
