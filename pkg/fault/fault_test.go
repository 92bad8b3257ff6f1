package fault_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func newBlob() blob.Store { return memblob.New(nil, time.Now, memblob.Options{}) }

func name(n string) *meta.Name { return &meta.Name{Name: n, Created: 1} }

// create makes a name, if it is absent.
func create(ctx context.Context, s meta.Store, n string) error {
	_, err := s.Apply(ctx, meta.Put{Record: name(n), If: meta.Absent(), Version: 1})
	return err
}

func exists(t *testing.T, s meta.Store, n string) bool {
	t.Helper()
	_, err := s.Get(context.Background(), meta.NameKey(n))
	if err != nil && !queue.Is(err, queue.KindNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

// noKind stands for success in the tables below.
const noKind = queue.KindInternal

func wantKind(t *testing.T, err error, kind queue.Kind) {
	t.Helper()
	if (kind == noKind) != (err == nil) || err != nil && !queue.Is(err, kind) {
		t.Fatalf("error %v, want kind %q", err, kind)
	}
}

func TestFaultsOfARecordWrite(t *testing.T) {
	cases := []struct {
		fault   fault.Fault
		kind    queue.Kind
		applied bool
		crashed bool
	}{
		{fault.None, noKind, true, false},
		{fault.FailBefore, queue.KindUnavailable, false, false},
		{fault.FailAfter, queue.KindOutcomeUnknown, true, false},
		{fault.CrashBefore, queue.KindCanceled, false, true},
		{fault.CrashAfter, queue.KindCanceled, true, true},
		{fault.Throttle, queue.KindThrottled, false, false},
		{fault.Cut, queue.KindUnavailable, false, false},
		{fault.Delay, noKind, true, false},
		{fault.Late, queue.KindOutcomeUnknown, false, false},
		// The second try meets the first one's record.
		{fault.Repeat, queue.KindExists, true, false},
	}
	for _, c := range cases {
		t.Run(c.fault.String(), func(t *testing.T) {
			ctx := context.Background()
			bare := memmeta.New(t)
			plan := fault.Script(fault.Options{}, fault.Rule{Nth: 1, Fault: c.fault})
			s := fault.Meta(bare, plan)
			err := create(ctx, s, "a")
			wantKind(t, err, c.kind)
			if injected := c.kind != noKind && c.fault != fault.Repeat; fault.IsInjected(err) != injected {
				t.Errorf("is %v injected? want %t", err, injected)
			}
			if got := exists(t, bare, "a"); got != c.applied {
				t.Errorf("applied: %t, want %t", got, c.applied)
			}
			if plan.Crashed() != c.crashed {
				t.Errorf("crashed: %t, want %t", plan.Crashed(), c.crashed)
			}
			_, err = s.Get(ctx, meta.NameKey("a"))
			if c.crashed != queue.Is(err, queue.KindCanceled) {
				t.Errorf("a later call: %v", err)
			}
		})
	}
}

func TestFaultsOfARead(t *testing.T) {
	for _, f := range []fault.Fault{fault.FailBefore, fault.FailAfter, fault.Late, fault.Cut} {
		t.Run(f.String(), func(t *testing.T) {
			plan := fault.Script(fault.Options{}, fault.Rule{Fault: f})
			_, err := fault.Meta(memmeta.New(t), plan).Get(context.Background(), meta.NameKey("a"))
			wantKind(t, err, queue.KindUnavailable)
		})
	}
}

func TestRulesFindTheirCalls(t *testing.T) {
	cases := []struct {
		name string
		rule fault.Rule
		// hits are the calls of the sequence below that the rule is to hit.
		hits []int
	}{
		{"every call", fault.Rule{}, []int{1, 2, 3, 4, 5, 6}},
		{"the k-th call", fault.Rule{Nth: 3}, []int{3}},
		{"by name", fault.Rule{Op: "get"}, []int{2, 5}},
		{"the k-th of a name", fault.Rule{Op: "get", Nth: 2}, []int{5}},
		{"several from the k-th on", fault.Rule{Nth: 2, Times: 3}, []int{2, 3, 4}},
		{"by start of name", fault.Rule{Op: "put *"}, []int{1, 3, 6}},
		{"no part of a name", fault.Rule{Op: "put"}, nil},
		{"a transaction by its ops", fault.Rule{Op: "put name", Nth: 2}, []int{3}},
		{"a transaction by its name", fault.Rule{Op: "transact"}, []int{3}},
		{"a transaction by a key", fault.Rule{Op: "transact", Key: "n c"}, []int{3}},
		{"a transaction by an op and its key", fault.Rule{Op: "put name", Key: "n c"}, []int{3}},
		{"op and key of different parts", fault.Rule{Op: "delete name", Key: "n c"}, nil},
		{"by key", fault.Rule{Key: "n a"}, []int{1, 2, 3, 5}},
		{"a delete by its second key", fault.Rule{Key: "uploads/y"}, []int{4}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			c.rule.Fault = fault.Throttle
			plan := fault.Script(fault.Options{}, c.rule)
			records, objects := fault.Meta(memmeta.New(t), plan), fault.Blob(newBlob(), plan)
			calls := []func() error{
				func() error { return create(ctx, records, "a") },
				func() error { _, err := records.Get(ctx, meta.NameKey("a")); return err },
				func() error {
					_, err := records.Transact(ctx, []meta.Op{
						meta.Delete{Key: meta.NameKey("a"), Kind: meta.KindName},
						meta.Put{Record: name("c"), Version: 1},
					})
					return err
				},
				func() error { return objects.Delete(ctx, "uploads/x", "uploads/y") },
				func() error { _, err := records.Get(ctx, meta.NameKey("a")); return err },
				func() error {
					_, err := objects.Put(ctx, "uploads/z", strings.NewReader(""), blob.Terms{})
					return err
				},
			}
			var hits []int
			for i, call := range calls {
				if queue.Is(call(), queue.KindThrottled) {
					hits = append(hits, i+1)
				}
			}
			if len(hits) != len(c.hits) {
				t.Fatalf("hit %v, want %v\n%s", hits, c.hits, plan.Trace())
			}
			for i, h := range c.hits {
				if hits[i] != h {
					t.Fatalf("hit %v, want %v\n%s", hits, c.hits, plan.Trace())
				}
			}
		})
	}
}

func TestDelayTakesItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := fault.Script(fault.Options{}, fault.Rule{Fault: fault.Delay, Pause: time.Minute})
		bare := memmeta.New(t)
		s := fault.Meta(bare, plan)
		start := time.Now()
		if err := create(t.Context(), s, "a"); err != nil || time.Since(start) != time.Minute {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := create(ctx, s, "b")
		wantKind(t, err, queue.KindCanceled)
		if !errors.Is(err, context.DeadlineExceeded) || exists(t, bare, "b") {
			t.Errorf("error %v, applied %t", err, exists(t, bare, "b"))
		}
	})
}

func TestHangEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := fault.Script(fault.Options{}, fault.Rule{Fault: fault.Hang})
		bare := memmeta.New(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		go func() {
			time.Sleep(time.Minute)
			plan.Release() // is not for the hung call
		}()
		start := time.Now()
		wantKind(t, create(ctx, fault.Meta(bare, plan), "a"), queue.KindCanceled)
		if time.Since(start) != time.Hour || exists(t, bare, "a") {
			t.Errorf("hung for %v, applied %t", time.Since(start), exists(t, bare, "a"))
		}
	})
}

func TestFrozenCall(t *testing.T) {
	cases := []struct {
		name    string
		wake    func(p *fault.Plan, cancel func())
		kind    queue.Kind
		applied bool
	}{
		{"released", func(p *fault.Plan, _ func()) { p.Release() }, noKind, true},
		{"healed", func(p *fault.Plan, _ func()) { p.Heal() }, noKind, true},
		{"crashed", func(p *fault.Plan, _ func()) { p.Crash() }, queue.KindCanceled, false},
		{"canceled", func(_ *fault.Plan, cancel func()) { cancel() }, queue.KindCanceled, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				bare := memmeta.New(t)
				plan := fault.Script(fault.Options{}, fault.Rule{Nth: 1, Fault: fault.Freeze})
				answer := make(chan error, 1)
				go func() { answer <- create(ctx, fault.Meta(bare, plan), "a") }()
				if err := plan.AwaitFrozen(t.Context(), 1); err != nil || exists(t, bare, "a") {
					t.Fatalf("error %v, applied %t", err, exists(t, bare, "a"))
				}
				c.wake(plan, cancel)
				wantKind(t, <-answer, c.kind)
				if exists(t, bare, "a") != c.applied {
					t.Errorf("applied: %t", !c.applied)
				}
			})
		})
	}
}

func TestLateCallArrivesOnRelease(t *testing.T) {
	bare, objects := memmeta.New(t), newBlob()
	plan := fault.Script(fault.Options{}, fault.Rule{Times: 3, Nth: 1, Fault: fault.Late})
	ctx, cancel := context.WithCancel(t.Context())
	wantKind(t, create(ctx, fault.Meta(bare, plan), "a"), queue.KindOutcomeUnknown)
	data := []byte("abc")
	_, err := fault.Blob(objects, plan).Create(ctx, blob.PrefixBatches, data)
	wantKind(t, err, queue.KindOutcomeUnknown)
	_, err = fault.Blob(objects, plan).Put(ctx, "uploads/a", strings.NewReader("def"), blob.Terms{Size: 3})
	wantKind(t, err, queue.KindOutcomeUnknown)
	// The caller goes on with its life.
	copy(data, "xxx")
	cancel()
	plan.Crash()
	if exists(t, bare, "a") {
		t.Fatal("applied before it arrived")
	}
	plan.Release()
	if !exists(t, bare, "a") {
		t.Error("the record's request did not arrive")
	}
	page, err := objects.List(t.Context(), "", "", 10)
	if err != nil || len(page.Objects) != 2 {
		t.Fatalf("objects %v, error %v", page.Objects, err)
	}
	for i, want := range []string{"abc", "def"} {
		got, err := objects.Get(t.Context(), page.Objects[i].Key, blob.Span{}, nil)
		if err != nil || string(got) != want {
			t.Errorf("object %q, error %v, want %q", got, err, want)
		}
	}
}

func TestCrashEndsTheProcess(t *testing.T) {
	ctx := t.Context()
	bare := memmeta.New(t)
	objects := newBlob()
	if _, err := objects.Put(ctx, "uploads/a", strings.NewReader("abc"), blob.Terms{Size: 3}); err != nil {
		t.Fatal(err)
	}
	plan := fault.Script(fault.Options{})
	records, blobs := fault.Meta(bare, plan), fault.Blob(objects, plan)
	r, _, err := blobs.Open(ctx, "uploads/a", blob.Span{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	plan.Crash()
	if _, err := io.ReadAll(r); !queue.Is(err, queue.KindCanceled) {
		t.Errorf("an open reader still reads: %v", err)
	}
	wantKind(t, create(ctx, records, "a"), queue.KindCanceled)
	wantKind(t, blobs.Delete(ctx, "uploads/a"), queue.KindCanceled)
	if plan.Steps() != 1 || !strings.Contains(plan.Trace(), "2 calls by the dead process") {
		t.Errorf("trace:\n%s", plan.Trace())
	}
	plan.Heal()
	if err := create(ctx, records, "a"); err != nil || plan.Steps() != 1 {
		t.Errorf("healed: error %v, %d steps", err, plan.Steps())
	}
	plan.Crash()
	if plan.Crashed() {
		t.Error("a healed plan crashes")
	}
}

// A call that is under way when the process dies takes effect, but nobody gets its answer.
func TestCrashDropsAnswersUnderWay(t *testing.T) {
	bare := memmeta.New(t)
	plan := fault.Script(fault.Options{})
	s := fault.Meta(&crashing{bare, plan}, plan)
	wantKind(t, create(t.Context(), s, "a"), queue.KindCanceled)
	if !exists(t, bare, "a") {
		t.Error("not applied")
	}
}

// crashing is a store within whose Apply the process dies.
type crashing struct {
	meta.Store
	plan *fault.Plan
}

func (c *crashing) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	res, err := c.Store.Apply(ctx, op)
	c.plan.Crash()
	return res, err
}
