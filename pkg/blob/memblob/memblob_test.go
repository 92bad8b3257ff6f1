package memblob_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/blobtest"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestConformance(t *testing.T) {
	blobtest.Run(t, blobtest.Harness{
		New: func(testing.TB) blob.Store {
			// The suite breaks the caller's rules on purpose, so nothing is reported.
			return memblob.New(nil, time.Now, memblob.Options{})
		},
		HugeBytes: -1,
	})
}

type recorder struct{ complaints []string }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
}

func put(s blob.Store, key, data string) error {
	_, err := s.Put(context.Background(), key, strings.NewReader(data), blob.Terms{Size: int64(len(data))})
	return err
}

func TestReportsBrokenRules(t *testing.T) {
	cases := []struct {
		name     string
		run      func(t *testing.T, s blob.Store)
		complain string
	}{
		{"retry of the same bytes", func(t *testing.T, s blob.Store) {
			if err := put(s, "uploads/a", "x"); !queue.Is(err, queue.KindExists) {
				t.Fatal(err)
			}
		}, ""},
		{"other bytes", func(t *testing.T, s blob.Store) {
			if err := put(s, "uploads/a", "y"); !queue.Is(err, queue.KindExists) {
				t.Fatal(err)
			}
		}, `object "uploads/a" is written again with other bytes`},
		{"again after a delete", func(t *testing.T, s blob.Store) {
			if err := s.Delete(context.Background(), "uploads/a"); err != nil {
				t.Fatal(err)
			}
			if err := put(s, "uploads/a", "x"); err != nil {
				t.Fatal(err)
			}
		}, `object "uploads/a" is written again after its deletion`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rec := &recorder{}
			s := memblob.New(rec, time.Now, memblob.Options{})
			if err := put(s, "uploads/a", "x"); err != nil {
				t.Fatal(err)
			}
			c.run(t, s)
			got := strings.Join(rec.complaints, "; ")
			if (c.complain == "") != (got == "") || !strings.Contains(got, c.complain) {
				t.Fatalf("reported %q, want %q", got, c.complain)
			}
		})
	}
}

func TestKeysFollowTheIDs(t *testing.T) {
	create := func() string {
		s := memblob.New(t, time.Now, memblob.Options{IDs: queue.NewIDs(bytes.NewReader(make([]byte, 10)))})
		key, err := s.Create(context.Background(), blob.PrefixBatches, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	if a, b := create(), create(); a != b || a != "batches/0000000000000000" {
		t.Fatalf("keys %q and %q", a, b)
	}
}

func TestFull(t *testing.T) {
	s := memblob.New(t, time.Now, memblob.Options{MaxBytes: 10})
	key, err := s.Create(context.Background(), blob.PrefixBatches, make([]byte, 8))
	if err != nil {
		t.Fatal(err)
	}
	if err = put(s, "uploads/a", "abc"); !queue.Is(err, queue.KindFull) {
		t.Fatal(err)
	}
	if err = s.Delete(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	if err = put(s, "uploads/a", "abc"); err != nil {
		t.Fatal(err)
	}
}
