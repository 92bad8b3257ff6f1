package compact_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// noting keeps the notes of freed runs that are put.
type noting struct {
	meta.Store
	freed []meta.Put
}

func (n *noting) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if put, ok := op.(meta.Put); ok {
		if _, ok := put.Record.(*meta.Freed); ok {
			n.freed = append(n.freed, put)
		}
	}
	return n.Store.Apply(ctx, op)
}

// TestLateNote: a compactor's note arrives a second time, or for the first, after another compactor has deleted the
// object and all that was noted of it. It is found, however late within the grace period, and the look for it ends.
func TestLateNote(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{MinSegments: 4})
	var many []produce.Message
	for i := range 32 {
		many = append(many, produce.Message{Key: fmt.Appendf(nil, "k%d", i), Body: []byte("x")})
	}
	r.send("one", many...)
	if err := r.sys.Topics.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	store := &noting{Store: r.meta}
	s := r.compactor(store, r.blob)
	for r.stored() > 0 {
		r.pass(queue.GracePeriod)
		if _, err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(store.freed) < 2 {
		t.Fatalf("%d runs were noted: the object had not several owners", len(store.freed))
	}
	for _, put := range store.freed[:2] {
		if _, err := r.meta.Apply(t.Context(), put); err != nil {
			t.Fatal(err)
		}
		r.pass(queue.GracePeriod)
		if _, err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.settle()
	r.audit()
	if left := r.query(meta.WorkPK(0)); len(left) > 0 {
		t.Errorf("%d pieces of work are left: %+v", len(left), left[0].Record)
	}
}
