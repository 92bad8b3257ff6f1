package memmeta_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

type recorder struct{ said []string }

func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func page(count uint32) *meta.RefPage {
	return &meta.RefPage{Segment: "seg", Refs: []meta.Ref{{Kind: meta.RefBatch, Object: "o", Count: count}}}
}

func TestViolations(t *testing.T) {
	for _, tc := range []struct {
		name    string
		first   meta.Record
		then    meta.Op
		say     string
		allowed bool
	}{
		{"page replaced blindly", page(1), meta.Put{Record: page(2), Version: 2}, "immutable", false},
		{"page replaced by its equal", page(1), meta.Put{Record: page(1), Version: 2}, "", true},
		{"page replaced by compare-and-swap", page(1), meta.Put{Record: page(2), If: meta.At(1), Version: 2}, "", true},
		{
			"payload replaced", &meta.Payload{ID: "x", Data: []byte("a")},
			meta.Put{Record: &meta.Payload{ID: "x", Data: []byte("b")}, If: meta.At(1), Version: 2},
			"immutable", false,
		},
		{"payload id used again by an append", &meta.Payload{ID: "x", Data: []byte("a")}, meta.Append{
			Segment: "seg", Refs: page(1).Refs, Payload: &meta.Payload{ID: "x", Data: []byte("b")},
		}, "used again", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := &recorder{}
			s := memmeta.New(rec)
			for _, r := range []meta.Record{&meta.Head{Segment: "seg", Range: queue.Ring()}, tc.first} {
				if _, err := s.Apply(t.Context(), meta.Put{Record: r, Version: 1}); err != nil {
					t.Fatal(err)
				}
			}
			_, err := s.Apply(t.Context(), tc.then)
			if tc.allowed != (err == nil) {
				t.Errorf("the op ended with %v", err)
			}
			if said := strings.Join(rec.said, "\n"); tc.allowed != (said == "") || !strings.Contains(said, tc.say) {
				t.Errorf("the store said %q, want something about %q", said, tc.say)
			}
		})
	}
}

func TestChangedSnapshotIsReported(t *testing.T) {
	rec := &recorder{}
	s := memmeta.New(rec)
	if _, err := s.Apply(t.Context(), meta.Put{Record: &meta.Topic{ID: "t"}, Version: 1}); err != nil {
		t.Fatal(err)
	}
	item, err := s.Get(t.Context(), meta.TopicKey("t"))
	if err != nil {
		t.Fatal(err)
	}
	item.Record.(*meta.Topic).Epoch = 7
	if _, err := s.Apply(t.Context(), meta.Put{Record: &meta.Topic{ID: "t"}, Version: 2}); !queue.Is(err, queue.KindInternal) {
		t.Errorf("the put ended with %v", err)
	}
	if len(rec.said) != 1 {
		t.Errorf("the store said %q", rec.said)
	}
}

func TestSweep(t *testing.T) {
	s := memmeta.New(t)
	for token, expires := range map[string]queue.Millis{"old": 10, "young": 11, "forever": 0} {
		if _, err := s.Apply(t.Context(), meta.Put{Record: &meta.Attempt{Topic: "t", Token: token, Expires: expires}, Version: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Sweep(10); n != 1 || s.Len() != 2 {
		t.Errorf("swept %d, %d remain", n, s.Len())
	}
	if _, err := s.Get(t.Context(), meta.AttemptKey("t", "old")); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("get of a swept record: %v", err)
	}
}
