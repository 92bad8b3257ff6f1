package fault_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/blobtest"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestBlobConformance(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{
		New:       func(testing.TB) blob.Store { return fault.Blob(newBlob(), fault.Script(fault.Options{})) },
		HugeBytes: -1,
	})
}

// withObject is a store that holds "0123456789" as uploads/a, under a plan of one fault.
func withObject(t *testing.T, f fault.Fault) (bare, wrapped blob.Store) {
	t.Helper()
	bare = newBlob()
	if _, err := bare.Put(t.Context(), "uploads/a", strings.NewReader("0123456789"), blob.Terms{Size: 10}); err != nil {
		t.Fatal(err)
	}
	return bare, fault.Blob(bare, fault.Script(fault.Options{}, fault.Rule{Nth: 1, Fault: f}))
}

func TestFailAfterLeavesTheObject(t *testing.T) {
	ctx := t.Context()
	bare, s := withObject(t, fault.FailAfter)
	_, err := s.Create(ctx, blob.PrefixBatches, []byte("x"))
	wantKind(t, err, queue.KindOutcomeUnknown)
	page, err := bare.List(ctx, blob.PrefixBatches, "", 10)
	if err != nil || len(page.Objects) != 1 {
		t.Errorf("objects %v, error %v", page.Objects, err)
	}

	bare, s = withObject(t, fault.FailAfter)
	_, err = s.Put(ctx, "uploads/b", strings.NewReader("x"), blob.Terms{Size: 1})
	wantKind(t, err, queue.KindOutcomeUnknown)
	if _, err := bare.Head(ctx, "uploads/b"); err != nil {
		t.Error(err)
	}

	bare, s = withObject(t, fault.FailAfter)
	wantKind(t, s.Delete(ctx, "uploads/a"), queue.KindOutcomeUnknown)
	if _, err := bare.Head(ctx, "uploads/a"); !queue.Is(err, queue.KindNotFound) {
		t.Error(err)
	}
}

func TestCutReads(t *testing.T) {
	ctx := t.Context()
	cases := []struct {
		name string
		span blob.Span
		want string
	}{
		{"whole", blob.Span{}, "01234"},
		{"span", blob.Span{Pos: 4, Len: 4}, "45"},
		{"one byte", blob.Span{Pos: 4, Len: 1}, ""},
	}
	for _, c := range cases {
		t.Run("open "+c.name, func(t *testing.T) {
			_, s := withObject(t, fault.Cut)
			r, info, err := s.Open(ctx, "uploads/a", c.span)
			if err != nil || info.Size != 10 {
				t.Fatalf("info %v, error %v", info, err)
			}
			got, err := io.ReadAll(r)
			if string(got) != c.want || !queue.Is(err, queue.KindUnavailable) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("read %q, error %v, want %q", got, err, c.want)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		t.Run("get "+c.name, func(t *testing.T) {
			_, s := withObject(t, fault.Cut)
			got, err := s.Get(ctx, "uploads/a", c.span, []byte(">"))
			if string(got) != ">"+c.want || !queue.Is(err, queue.KindUnavailable) {
				t.Errorf("got %q, error %v, want %q", got, err, c.want)
			}
			// The second call is whole.
			got, err = s.Get(ctx, "uploads/a", blob.Span{}, nil)
			if string(got) != "0123456789" || err != nil {
				t.Errorf("got %q, error %v", got, err)
			}
		})
	}
}

func TestFailedGetKeepsDst(t *testing.T) {
	_, s := withObject(t, fault.FailAfter)
	got, err := s.Get(t.Context(), "uploads/a", blob.Span{}, []byte("dst"))
	wantKind(t, err, queue.KindUnavailable)
	if string(got) != "dst" {
		t.Errorf("dst is now %q", got)
	}
}

func TestCutDelete(t *testing.T) {
	ctx := t.Context()
	bare, s := withObject(t, fault.Cut)
	for _, k := range []string{"uploads/b", "uploads/c"} {
		if _, err := bare.Put(ctx, k, strings.NewReader(""), blob.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, s.Delete(ctx, "uploads/a", "uploads/b", "uploads/c"), queue.KindOutcomeUnknown)
	page, err := bare.List(ctx, "", "", 10)
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Key != "uploads/c" {
		t.Errorf("objects %v, error %v", page.Objects, err)
	}
}

// A reader of pages gets everything however its pages are cut.
func TestCutPages(t *testing.T) {
	ctx := t.Context()
	plan := fault.Script(fault.Options{}, fault.Rule{Fault: fault.Cut})
	bare, objects := memmeta.New(t), newBlob()
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		if err := create(ctx, bare, n); err != nil {
			t.Fatal(err)
		}
		if _, err := objects.Put(ctx, n, strings.NewReader(""), blob.Terms{}); err != nil {
			t.Fatal(err)
		}
	}
	var records, keys string
	for q, more := (meta.Range{PK: meta.NamespacePK, Limit: 4}), true; more; {
		page, err := fault.Meta(bare, plan).Query(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range page.Items {
			records += it.Record.Key().SK
		}
		q.From, more = meta.After(records[len(records)-1:]), page.More
	}
	for after, more := "", true; more; {
		page, err := fault.Blob(objects, plan).List(ctx, "", after, 4)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			keys += o.Key
		}
		after, more = keys[len(keys)-1:], page.More
	}
	if records != "abcde" || keys != "abcde" || plan.Steps() < 6 {
		t.Errorf("records %q, keys %q\n%s", records, keys, plan.Trace())
	}
}

func TestRepeatedPut(t *testing.T) {
	ctx := t.Context()
	bare, s := withObject(t, fault.Repeat)
	_, err := s.Put(ctx, "uploads/b", strings.NewReader("xyz"), blob.Terms{Size: 3})
	wantKind(t, err, queue.KindExists)
	got, err := bare.Get(ctx, "uploads/b", blob.Span{}, nil)
	if string(got) != "xyz" || err != nil {
		t.Errorf("got %q, error %v", got, err)
	}
	// A source that breaks off breaks off each time.
	_, s = withObject(t, fault.Repeat)
	broken := io.MultiReader(strings.NewReader("x"), iotestError{})
	_, err = s.Put(ctx, "uploads/b", broken, blob.Terms{Size: 3})
	wantKind(t, err, queue.KindUnavailable)
}

type iotestError struct{}

func (iotestError) Read([]byte) (int, error) { return 0, errors.New("the source broke") }

type presigning struct{ blob.Store }

func (presigning) PresignPut(context.Context, string, blob.Terms, time.Time) (blob.Request, error) {
	return blob.Request{Method: "PUT"}, nil
}

func (presigning) PresignGet(context.Context, string, time.Time) (blob.Request, error) {
	return blob.Request{Method: "GET"}, nil
}

func TestBlobKeepsPresigner(t *testing.T) {
	plan := fault.Script(fault.Options{})
	if _, ok := fault.Blob(newBlob(), plan).(blob.Presigner); ok {
		t.Error("a store that does not presign seems to, once it is wrapped")
	}
	if _, ok := fault.Blob(presigning{newBlob()}, plan).(blob.Presigner); !ok {
		t.Error("a store that presigns does not any more, once it is wrapped")
	}
}
