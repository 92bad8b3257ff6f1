package fault_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// publish stores an object, then a name that points to it: a small commit.
func publish(ctx context.Context, records meta.Store, objects blob.Store) error {
	key, err := objects.Create(ctx, blob.PrefixBatches, []byte("payload"))
	if err != nil {
		return err
	}
	_, err = records.Apply(ctx, meta.Put{Record: &meta.Name{Name: "a", Link: key}, If: meta.Absent(), Version: 1})
	if meta.IsRefused(err, meta.ReasonExists) {
		return nil
	}
	return err
}

func TestEachStepBreaksEveryStep(t *testing.T) {
	var seen []string
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		bare, objects := memmeta.New(t), newBlob()
		err := publish(t.Context(), fault.Meta(bare, plan), fault.Blob(objects, plan))
		name := "clean"
		for _, c := range plan.Fired() {
			name = c.Op + ": " + c.Fault.String()
		}
		seen = append(seen, name)
		if (err == nil) != (name == "clean") {
			t.Errorf("error %v", err)
		}
		if plan.Crashed() != queue.Is(err, queue.KindCanceled) {
			t.Errorf("crashed %t, error %v", plan.Crashed(), err)
		}
		// The next process finishes the work, and what is pointed to is there.
		if err := publish(t.Context(), bare, objects); err != nil {
			t.Fatal(err)
		}
		n, _, err := meta.Fetch[*meta.Name](t.Context(), bare, meta.NameKey("a"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Head(t.Context(), n.Link); err != nil {
			t.Error(err)
		}
	})
	want := []string{
		"clean",
		"create object: fail before", "create object: fail after", "create object: crash before", "create object: crash after",
		"put name: fail before", "put name: fail after", "put name: crash before", "put name: crash after",
	}
	if !slices.Equal(seen, want) {
		t.Errorf("runs: %s\nwant: %s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}

func TestEachStepNamesItsRuns(t *testing.T) {
	var names []string
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		_, sub, _ := strings.Cut(t.Name(), "/")
		names = append(names, sub)
		s := fault.Meta(memmeta.New(t), plan)
		_, _ = s.Get(t.Context(), meta.NameKey("a"))
		_, _ = s.Transact(t.Context(), []meta.Op{meta.Put{Record: name("a"), Version: 1}, meta.Put{Record: name("b"), Version: 1}})
		_ = create(t.Context(), s, "c")
		plan.Heal()
		_, _ = s.Get(t.Context(), meta.NameKey("a")) // checks are no steps
	}, fault.FailBefore, fault.FailAfter, fault.Repeat, fault.Cut)
	want := []string{
		"clean",
		"step_1_get_n_a:_fail_before",
		"step_2_transact_(put_name,_put_name)_n_a,_n_b:_fail_before",
		"step_2_transact_(put_name,_put_name)_n_a,_n_b:_fail_after",
		"step_2_transact_(put_name,_put_name)_n_a,_n_b:_repeat",
		// "put name" within the transaction above is no call of that name.
		"step_3_put_name_n_c:_fail_before",
		"step_3_put_name_n_c:_fail_after",
		"step_3_put_name_n_c:_repeat",
	}
	if !slices.Equal(names, want) {
		t.Errorf("runs:\n%s\nwant:\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
}

// With Late, a request arrives after the next process has done its work: here it must not win.
func TestEachStepWithLateRequests(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		bare := memmeta.New(t)
		_ = create(t.Context(), fault.Meta(bare, plan), "a")
		if _, err := bare.Apply(t.Context(), meta.Put{Record: name("a"), Version: 2}); err != nil {
			t.Fatal(err)
		}
		plan.Release()
		if _, v, err := meta.Fetch[*meta.Name](t.Context(), bare, meta.NameKey("a")); err != nil || v != 2 {
			t.Errorf("version %d, error %v", v, err)
		}
	}, append(fault.Standard(), fault.Late)...)
}
