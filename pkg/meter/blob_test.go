package meter_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/blobtest"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meter"
)

func newBlob(testing.TB) blob.Store { return memblob.New(nil, time.Now, memblob.Options{}) }

func TestBlobConformance(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{
		New:       func(t testing.TB) blob.Store { return meter.New().Blob(newBlob(t)) },
		HugeBytes: -1,
	})
}

func TestObjectRequests(t *testing.T) {
	ctx := context.Background()
	const key, data = "uploads/a", "0123456789"
	terms := blob.Terms{Size: int64(len(data))}
	cases := []struct {
		name string
		call func(s blob.Store) error
		ok   bool
		want meter.Row
	}{
		{"create", func(s blob.Store) error {
			_, err := s.Create(ctx, blob.PrefixBatches, []byte(data))
			return err
		}, true, meter.Row{Op: "create object", Calls: 1, Ops: 1, Bytes: 10, Puts: 1}},
		{"put", func(s blob.Store) error {
			_, err := s.Put(ctx, "uploads/b", strings.NewReader(data), terms)
			return err
		}, true, meter.Row{Op: "put object", Calls: 1, Ops: 1, Bytes: 10, Puts: 1}},
		{"put of a key that is taken", func(s blob.Store) error {
			_, err := s.Put(ctx, key, strings.NewReader(data), terms)
			return err
		}, false, meter.Row{Op: "put object", Calls: 1, Ops: 1, Errors: 1, Puts: 1}},
		{"get", func(s blob.Store) error {
			_, err := s.Get(ctx, key, blob.Span{Pos: 2, Len: 3}, []byte("already here"))
			return err
		}, true, meter.Row{Op: "get object", Calls: 1, Ops: 1, Bytes: 3, Gets: 1}},
		{"get of nothing", func(s blob.Store) error {
			_, err := s.Get(ctx, "uploads/none", blob.Span{}, []byte("already here"))
			return err
		}, false, meter.Row{Op: "get object", Calls: 1, Ops: 1, Errors: 1, Gets: 1}},
		{"open counts what is read", func(s blob.Store) error {
			r, _, err := s.Open(ctx, key, blob.Span{})
			if err != nil {
				return err
			}
			if _, err := io.CopyN(io.Discard, r, 4); err != nil {
				return err
			}
			return r.Close()
		}, true, meter.Row{Op: "open object", Calls: 1, Ops: 1, Bytes: 4, Gets: 1}},
		{"head", func(s blob.Store) error {
			_, err := s.Head(ctx, key)
			return err
		}, true, meter.Row{Op: "head object", Calls: 1, Ops: 1, Gets: 1}},
		{"list is of the dear class", func(s blob.Store) error {
			_, err := s.List(ctx, blob.PrefixUploads, "", 10)
			return err
		}, true, meter.Row{Op: "list objects", Calls: 1, Ops: 1, Puts: 1}},
		{"delete is free", func(s blob.Store) error {
			return s.Delete(ctx, key, "uploads/none")
		}, true, meter.Row{Op: "delete objects", Calls: 1, Ops: 1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inner := newBlob(t)
			if _, err := inner.Put(ctx, key, strings.NewReader(data), terms); err != nil {
				t.Fatal(err)
			}
			m := meter.New()
			if err := c.call(m.Blob(inner)); (err == nil) != c.ok {
				t.Fatalf("error %v", err)
			}
			wantRows(t, m.Snapshot(), []meter.Row{c.want})
		})
	}
}

type presigning struct{ blob.Store }

func (presigning) PresignPut(context.Context, string, blob.Terms, time.Time) (blob.Request, error) {
	return blob.Request{Method: "PUT"}, nil
}

func (presigning) PresignGet(context.Context, string, time.Time) (blob.Request, error) {
	return blob.Request{Method: "GET"}, nil
}

func TestBlobKeepsPresigner(t *testing.T) {
	m := meter.New()
	if _, ok := m.Blob(newBlob(t)).(blob.Presigner); ok {
		t.Error("a store that does not presign seems to, once it is wrapped")
	}
	p, ok := m.Blob(presigning{newBlob(t)}).(blob.Presigner)
	if !ok {
		t.Fatal("a store that presigns does not any more, once it is wrapped")
	}
	r, err := p.PresignGet(context.Background(), "uploads/a", time.Time{})
	if err != nil || r.Method != "GET" || m.Snapshot().Calls() != 0 {
		t.Errorf("request %v, error %v, counted:\n%s", r, err, m.Snapshot())
	}
}
