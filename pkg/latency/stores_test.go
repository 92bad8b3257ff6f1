package latency_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/latency"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// flat makes a figure whose every request takes about ms.
func flat(ms float64) latency.Figure {
	const little = 1e-6
	return latency.Figure{Least: ms, P50: ms, P99: ms + little}
}

func table(t *testing.T, limit float64) *latency.Table {
	return latency.NewTable(memmeta.New(t), latency.TableFigures{
		Read: flat(1), Many: flat(10), Write: flat(100), Transact: flat(1000), TransactMany: flat(10_000),
	}, limit, latency.NewSource(1, 1))
}

func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func head(n byte) *meta.Head {
	id := queue.NewIDs(constant(n)).Segment()
	return &meta.Head{Segment: id, Epoch: 1}
}

// constant is a source of ids: always the same byte.
type constant byte

func (c constant) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(c)
	}
	return len(p), nil
}

func progress(name string) meta.Put {
	return meta.Put{Record: &meta.Progress{Name: name, Again: 1}, Version: 1}
}

// TestRequestsOfTheDriver: each call takes the times of the requests that the driver makes for it.
func TestRequestsOfTheDriver(t *testing.T) {
	ctx := t.Context()
	h := head(1)
	put := meta.Put{Record: h, Version: 1}
	ref := meta.Ref{ID: meta.RefID([16]byte{1}), Object: "o", Count: 1, Inline: true}
	commit := meta.Append{Segment: h.Segment, Epoch: 1, Refs: []meta.Ref{ref}, At: 1, Deadline: 1 << 50}
	paid := commit
	paid.Refs = []meta.Ref{{ID: meta.RefID([16]byte{2}), Object: "p", Count: 1, Inline: true}}
	paid.Payload = &meta.Payload{ID: "p", Data: []byte("x")}
	trim := meta.Trim{Segment: h.Segment, First: 0, Count: 1}
	synctest.Test(t, func(t *testing.T) {
		s := table(t, latency.PartitionUnits)
		for _, c := range []struct {
			name     string
			call     func() error
			want     time.Duration
			requests int
		}{
			{"put", func() error { _, err := s.Apply(ctx, put); return err }, 100 * time.Millisecond, 1},
			{"get", func() error { _, err := s.Get(ctx, h.Key()); return err }, time.Millisecond, 1},
			{"get all", func() error { _, err := s.GetAll(ctx, []meta.Key{h.Key()}); return err }, 10 * time.Millisecond, 1},
			{"query", func() error { _, err := s.Query(ctx, meta.Range{PK: h.Key().PK, Limit: 1}); return err }, 10 * time.Millisecond, 1},
			{"append", func() error { _, err := s.Apply(ctx, commit); return err }, 100 * time.Millisecond, 1},
			{"append with a payload", func() error { _, err := s.Apply(ctx, paid); return err }, 200 * time.Millisecond, 2},
			{"trim", func() error { _, err := s.Apply(ctx, trim); return err }, 101 * time.Millisecond, 2},
			{"transaction with a trim", func() error {
				_, err := s.Transact(ctx, []meta.Op{meta.Trim{Segment: h.Segment, First: 1, Count: 1}, progress("a")})
				return err
			}, 1001 * time.Millisecond, 2},
			{"transaction with a trim of a head that was seen", func() error {
				_, err := s.Transact(ctx, []meta.Op{meta.Trim{Segment: h.Segment, First: 2, Count: 0, Seen: h}, progress("z")})
				return err
			}, time.Second, 1},
			{"transaction of six", func() error {
				_, err := s.Transact(ctx, []meta.Op{progress("b"), progress("c"), progress("d"), progress("e"), progress("f"), progress("g")})
				return err
			}, 10 * time.Second, 1},
		} {
			before := s.Counts().Requests
			got := took(func() {
				if err := c.call(); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			})
			if d := (got - c.want).Abs(); d > time.Millisecond/2 {
				t.Errorf("%s took %v, want %v", c.name, got, c.want)
			}
			if n := s.Counts().Requests - before; n != c.requests {
				t.Errorf("%s made %d requests, want %d", c.name, n, c.requests)
			}
		}
	})
}

// TestUnitsOfAPartitionKey: what is asked of one key above its units a second is refused; another key is not.
func TestUnitsOfAPartitionKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, seconds = 5, 20
		s := latency.NewTable(memmeta.New(t), latency.TableFigures{Write: flat(1)}, limit, latency.NewSource(1, 1))
		done := 0
		for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); {
			_, err := s.Apply(t.Context(), meta.Put{Record: head(1), Version: 1})
			switch {
			case err == nil:
				done++
			case !queue.Is(err, queue.KindThrottled):
				t.Fatal(err)
			}
		}
		// A second's worth beforehand, and a unit a put.
		if want := limit * (seconds + 1); done < want-1 || done > want+1 {
			t.Errorf("%d puts in %d s of %d units each, want %d", done, seconds, limit, want)
		}
		if c := s.Counts(); c.Throttles == 0 || c.Throttles+done != c.Requests || int(c.Units) != done {
			t.Errorf("%+v, %d done", c, done)
		}
		if _, err := s.Apply(t.Context(), meta.Put{Record: head(2), Version: 1}); err != nil {
			t.Errorf("another key: %v", err)
		}
	})
}

// TestBucketTakesTime: a request takes its figure's time, and more for what it carries.
func TestBucketTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := latency.BucketFigures{Get: flat(10), Put: flat(100)}
		f.Put.Bytes, f.Put.PerSecond, f.Get.PerSecond = 1000, 1000, 1000
		b := latency.NewBucket(memblob.New(t, time.Now, memblob.Options{}), f, latency.NewSource(1, 1))
		ctx, key := t.Context(), ""
		for _, c := range []struct {
			name string
			call func() error
			want time.Duration
		}{
			{"create", func() (err error) { key, err = b.Create(ctx, blob.PrefixBatches, make([]byte, 3000)); return err }, 2100 * time.Millisecond},
			{"a small one", func() error { _, err := b.Create(ctx, blob.PrefixBatches, make([]byte, 10)); return err }, 100 * time.Millisecond},
			{"get", func() error { _, err := b.Get(ctx, key, blob.Span{}, make([]byte, 7)); return err }, 3010 * time.Millisecond},
			{"get a part", func() error { _, err := b.Get(ctx, key, blob.Span{Pos: 5, Len: 1000}, nil); return err }, 1010 * time.Millisecond},
			{"open", func() error {
				r, _, err := b.Open(ctx, key, blob.Span{})
				if err == nil {
					err = r.Close()
				}
				return err
			}, 3010 * time.Millisecond},
			{"head", func() error { _, err := b.Head(ctx, key); return err }, 10 * time.Millisecond},
			{"list", func() error { _, err := b.List(ctx, blob.PrefixBatches, "", 10); return err }, 10 * time.Millisecond},
			{"delete", func() error { return b.Delete(ctx, key) }, 100 * time.Millisecond},
		} {
			got := took(func() {
				if err := c.call(); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
			})
			if d := (got - c.want).Abs(); d > time.Millisecond/2 {
				t.Errorf("%s took %v, want %v", c.name, got, c.want)
			}
		}
	})
}

// TestSourcesDoNotDisturbEachOther: a caller draws the same whoever else calls.
func TestSourcesDoNotDisturbEachOther(t *testing.T) {
	draws := func(between bool) (out []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := latency.NewTable(memmeta.New(t), latency.DynamoDB(), latency.PartitionUnits, latency.NewSource(1, 1))
			mine := latency.With(t.Context(), latency.NewSource(5, 5))
			other := latency.With(t.Context(), latency.NewSource(5, 6))
			for range 100 {
				out = append(out, took(func() { read(mine, t, s) }))
				if between {
					read(other, t, s)
					read(t.Context(), t, s)
				}
			}
		})
		return out
	}
	alone, among := draws(false), draws(true)
	for i := range alone {
		if alone[i] != among[i] {
			t.Fatalf("draw %d: %v alone, %v among others", i, alone[i], among[i])
		}
	}
}

func read(ctx context.Context, t *testing.T, s meta.Store) {
	t.Helper()
	if _, err := s.Get(ctx, meta.ProgressKey("none")); !queue.Is(err, queue.KindNotFound) {
		t.Error(err)
	}
}
