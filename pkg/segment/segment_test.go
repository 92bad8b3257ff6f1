package segment_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/fault"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

const segID = queue.SegmentID("0123456789abcdef")

// world is one segment on memory stores, seen through a log whose store calls may be made to fail.
type world struct {
	t     *testing.T
	meta  meta.Store
	blob  blob.Store
	desc  *meta.Segment
	ids   *queue.IDs
	now   time.Time
	clean *segment.Log
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t: t, meta: memmeta.New(t), ids: queue.NewIDs(rand.NewChaCha8([32]byte{1})),
		now:  time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC),
		desc: &meta.Segment{ID: segID, Range: queue.Ring(), Epoch: 1},
	}
	w.blob = memblob.New(t, w.clock, memblob.Options{})
	w.clean = w.log(w.meta, w.blob)
	_, err := w.meta.Apply(t.Context(), meta.Put{
		Record: &meta.Head{Segment: segID, Epoch: 1, Range: queue.Ring()}, If: meta.Absent(), Version: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) clock() time.Time { return w.now }

func (w *world) log(m meta.Store, b blob.Store) *segment.Log {
	return segment.New(segment.Deps{Meta: m, Blob: b, IDs: w.ids, Clock: w.clock})
}

func (w *world) commit(n byte, count uint32) segment.Commit {
	at := queue.MillisOf(w.now)
	return segment.Commit{
		Segment: w.desc, At: at, Deadline: at.Add(queue.CommitTimeout),
		Refs: []meta.Ref{{
			Kind: meta.RefBatch, ID: meta.RefID{n}, Object: fmt.Sprintf("batches/%d", n), Len: 1,
			Count: count, Created: at, Bytes: int64(count),
		}},
	}
}

// layout reads the whole segment back: the ref id at each offset.
func (w *world) layout() map[queue.Offset]byte {
	w.t.Helper()
	head, err := w.clean.Head(context.Background(), segID)
	if err != nil {
		w.t.Fatal(err)
	}
	got := make(map[queue.Offset]byte)
	next := queue.Offset(0)
	for loc, err := range w.clean.Refs(context.Background(), head, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		if loc.Offset != next {
			w.t.Fatalf("a ref starts at %d, want %d: offsets are not dense", loc.Offset, next)
		}
		for off := loc.Offset; off < loc.End(); off++ {
			got[off] = loc.Ref.ID[0]
		}
		next = loc.End()
	}
	if next != head.Next {
		w.t.Fatalf("the refs end at %d, the head says %d", next, head.Next)
	}
	return got
}

func TestAppendRollRead(t *testing.T) {
	w := newWorld(t)
	const commits = 200
	next := queue.Offset(0)
	for i := range commits {
		done, err := w.clean.Append(t.Context(), w.commit(byte(i), uint32(i%3+1)))
		if err != nil {
			t.Fatal(err)
		}
		if done.Offset != next || done.Repeated {
			t.Fatalf("commit %d got %+v, want offset %d", i, done, next)
		}
		next += queue.Offset(done.Count)
	}
	if got := w.layout(); len(got) != int(next) {
		t.Fatalf("%d messages are readable, want %d", len(got), next)
	}
	head, _ := w.clean.Head(t.Context(), segID)
	if len(head.Tail) > queue.RollRefs {
		t.Errorf("the tail holds %d refs, want it rolled at %d", len(head.Tail), queue.RollRefs)
	}
	// From the middle: the first ref given is the one that holds the offset.
	for loc, err := range w.clean.Refs(t.Context(), head, 77) {
		if err != nil || loc.Offset > 77 || loc.End() <= 77 {
			t.Fatalf("reading from 77 starts with [%d,%d), %v", loc.Offset, loc.End(), err)
		}
		break
	}
}

// TestAppendCost holds the price of a commit: one head update; one more transaction for each RollRefs
// of them.
func TestAppendCost(t *testing.T) {
	w := newWorld(t)
	m := meter.New()
	log := w.log(m.Meta(w.meta), m.Blob(w.blob))
	for i := range 96 {
		if _, err := log.Append(t.Context(), w.commit(byte(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	s := m.Snapshot()
	if s.Ops("append") != 96 || s.Ops("put page") != 3 || s.Ops("trim") != 3 || s.Ops("get") != 0 || s.Ops("query") != 0 {
		t.Errorf("96 commits cost\n%s\nwant 96 appends, 3 rolls and no read", s)
	}
}

// TestAppendFaults breaks every store call of a commit that rolls, in every way. Whatever happens, a
// commit that was acknowledged is there once, and one whose outcome is unknown is there at most once
// and, made again by the next process, exactly once.
func TestAppendFaults(t *testing.T) {
	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
		w := newWorld(t)
		for i := range queue.RollRefs - 1 {
			if _, err := w.clean.Append(t.Context(), w.commit(byte(i), 2)); err != nil {
				t.Fatal(err)
			}
		}
		log := w.log(fault.Meta(w.meta, plan), fault.Blob(w.blob, plan))
		c := w.commit(200, 3)
		done, err := log.Append(t.Context(), c)
		if err == nil {
			if got := w.layout(); got[done.Offset] != 200 || got[done.Offset+2] != 200 {
				t.Fatalf("the commit was acknowledged at %d, where there is %v", done.Offset, got)
			}
		}
		c.Again = true
		again, err := w.clean.Append(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if again.Offset != 2*(queue.RollRefs-1) {
			t.Errorf("made again it is at %d", again.Offset)
		}
		n := 0
		for _, id := range w.layout() {
			if id == 200 {
				n++
			}
		}
		if n != 3 {
			t.Errorf("%d messages of the commit are in the log, want its 3 once", n)
		}
	})
}

// TestLateRequest: a request whose answer was lost is still travelling when the retry, and then 100
// other commits, take effect. When it arrives at last it must change nothing.
//
// Within the deadline the refs of the retry may have left the tail, so neither the tail nor the deadline
// tells the late request that it is one: the retry's mark in the head does.
func TestLateRequest(t *testing.T) {
	for _, between := range []int{0, 5, 100} {
		for _, pause := range []time.Duration{0, queue.CommitTimeout + time.Second} {
			t.Run(fmt.Sprintf("%d commits between, %v later", between, pause), func(t *testing.T) {
				lateRequest(t, between, pause)
			})
		}
	}
}

func lateRequest(t *testing.T, between int, pause time.Duration) {
	w := newWorld(t)
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "append", Nth: 1, Fault: fault.Late})
	log := w.log(fault.Meta(w.meta, plan), w.blob)
	if _, err := log.Append(t.Context(), w.commit(200, 1)); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(pause)
	for i := range between {
		if _, err := w.clean.Append(t.Context(), w.commit(byte(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	plan.Release()
	if got := w.layout(); len(got) != between+1 {
		t.Errorf("%d messages, want %d", len(got), between+1)
	}
}

// TestClockSetBack: a head that was written while the clock was ahead takes commits after it was set back, however
// much was written meanwhile; one that has waited too long by one and the same clock stays void.
func TestClockSetBack(t *testing.T) {
	w := newWorld(t)
	right, far := w.now, 300*queue.RollRefs // more pages than are looked through
	w.now = right.Add(queue.MaxCommitDelay + time.Hour)
	for i := range far {
		if _, err := w.clean.Append(t.Context(), w.commit(byte(i%200), 1)); err != nil {
			t.Fatal(err)
		}
	}
	w.now = right
	for i := range 2 {
		done, err := w.clean.Append(t.Context(), w.commit(byte(210+i), 1))
		if err != nil || done.Offset != queue.Offset(far+i) || done.Repeated {
			t.Errorf("commit %d after the clock was set back: %+v, %v", i, done, err)
		}
	}
	w.now = w.now.Add(2*queue.MaxCommitDelay + time.Hour)
	old := w.commit(201, 1)
	w.now = w.now.Add(queue.MaxCommitDelay + time.Second)
	if _, err := w.clean.Append(t.Context(), w.commit(202, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.clean.Append(t.Context(), old); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("a commit that waited too long: %v", err)
	}
}

func TestSequence(t *testing.T) {
	w := newWorld(t)
	seq := func(n uint64, id byte) segment.Commit {
		c := w.commit(id, 2)
		c.Producer = &meta.Sequence{ID: "p", Number: n}
		return c
	}
	first, err := w.clean.Append(t.Context(), seq(1, 1))
	if err != nil {
		t.Fatal(err)
	}
	if first.At == 0 {
		t.Error("a commit without its time")
	}
	for range 100 { // so that the first commit has long left the tail
		if _, err := w.clean.Append(t.Context(), w.commit(9, 1)); err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Millisecond)
	}
	again, err := w.clean.Append(t.Context(), seq(1, 2))
	if err != nil || !again.Repeated || again.Offset != first.Offset || again.Count != 2 || again.At != first.At {
		t.Errorf("the same sequence gives %+v, %v, want the first commit's place", again, err)
	}
	if _, err := w.clean.Append(t.Context(), seq(5, 3)); err != nil {
		t.Errorf("a gap in the sequence: %v", err)
	}
	if _, err := w.clean.Append(t.Context(), seq(4, 4)); queue.CodeOf(err) != queue.CodeSequenceOutOfOrder {
		t.Errorf("an old sequence: %v", err)
	}
}

func TestTooManyProducers(t *testing.T) {
	w := newWorld(t)
	add := func(i int) error {
		c := w.commit(byte(i), 1)
		c.Refs[0].ID[1] = byte(i >> 8)
		c.Producer = &meta.Sequence{ID: fmt.Sprint(i), Number: 1}
		_, err := w.clean.Append(t.Context(), c)
		return err
	}
	for i := range queue.MaxHeadProducers {
		if err := add(i); err != nil {
			t.Fatal(i, err)
		}
	}
	if err := add(1000); !queue.Is(err, queue.KindThrottled) {
		t.Errorf("one producer too many: %v", err)
	}
	w.now = w.now.Add(queue.MinProducerWindow)
	if err := add(1001); !queue.Is(err, queue.KindThrottled) {
		t.Errorf("within the least window: %v", err)
	}
	w.now = w.now.Add(time.Second)
	if err := add(1002); err != nil {
		t.Errorf("once the others have been idle: %v", err)
	}
}

func TestSealedAndFenced(t *testing.T) {
	w := newWorld(t)
	old := *w.desc
	old.Epoch = 7
	c := w.commit(1, 1)
	c.Segment = &old
	if _, err := w.clean.Append(t.Context(), c); !queue.Is(err, queue.KindFenced) && queue.KindOf(err) != queue.KindFenced {
		t.Errorf("another epoch: %v", err)
	}
	if _, err := w.meta.Apply(t.Context(), meta.Seal{Segment: segID, Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.clean.Append(t.Context(), w.commit(1, 1)); queue.KindOf(err) != queue.KindSealed {
		t.Errorf("a sealed segment: %v", err)
	}
}

func TestConcurrentAppends(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 40 {
				c := w.commit(byte(g), 1)
				c.Refs[0].ID[1] = byte(i)
				if _, err := w.clean.Append(t.Context(), c); err != nil {
					t.Errorf("writer %d: %v", g, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := w.layout(); len(got) != 320 {
		t.Errorf("%d messages, want 320", len(got))
	}
}

func TestData(t *testing.T) {
	w := newWorld(t)
	for name, codec := range map[string]batch.Codec{"none": batch.CodecNone, "zstd": batch.CodecZstd} {
		for size, body := range map[string]int{"small": 100, "large": 200 << 10} {
			t.Run(name+" "+size, func(t *testing.T) {
				enc := batch.NewEncoder(batch.Options{Codec: codec})
				src := rand.NewChaCha8([32]byte{3})
				for i := range 10 {
					b := make([]byte, body)
					_, _ = src.Read(b)
					if err := enc.Add(&batch.Record{Slot: queue.Slot(i), Body: append(b, byte(i))}); err != nil {
						t.Fatal(err)
					}
				}
				data, err := enc.Finish([]byte("before"), w.ids.Nonce())
				if err != nil {
					t.Fatal(err)
				}
				h, err := batch.ParseHeader(data[6:])
				if err != nil {
					t.Fatal(err)
				}
				key, err := w.blob.Create(t.Context(), blob.PrefixBatches, data)
				if err != nil {
					t.Fatal(err)
				}
				ref := &meta.Ref{Kind: meta.RefBatch, Object: key, Pos: 6, Len: h.Len(), Count: 10, Prefix: uint32(h.PrefixLen()), CRC: h.CRC, HasCRC: true}
				got, base, err := w.clean.Data(t.Context(), ref, 4, 3)
				if err != nil {
					t.Fatal(err)
				}
				r, err := batch.Open(got)
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Seek(int(base), 3); err != nil {
					t.Fatal(err)
				}
				var rec batch.Record
				for i := 4; r.Next(&rec); i++ {
					if rec.Body[len(rec.Body)-1] != byte(i) {
						t.Errorf("record %d has another's body", i)
					}
				}
				if r.Err() != nil {
					t.Error(r.Err())
				}
				ref.CRC++
				if _, _, err := w.log(w.meta, w.blob).Data(t.Context(), ref, 0, 1); !queue.Is(err, queue.KindCorrupt) {
					t.Errorf("a ref to another batch: %v", err)
				}
			})
		}
	}
}

// TestLateRoll: a writer stalls before its roll; others roll, and a compactor replaces the page and
// removes it. The stalled roll must not bring the old page back (docs/decisions/0002).
func TestLateRoll(t *testing.T) {
	w := newWorld(t)
	for i := range queue.RollRefs - 1 {
		if _, err := w.clean.Append(t.Context(), w.commit(byte(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	plan := fault.Script(fault.Options{}, fault.Rule{Op: "put page", Nth: 1, Fault: fault.Late})
	stalled := w.log(fault.Meta(w.meta, plan), w.blob)
	if _, err := stalled.Append(t.Context(), w.commit(100, 1)); err != nil {
		t.Fatal(err)
	}
	for i := range queue.MaxTailRefs { // until the tail is full and somebody else has to roll
		if _, err := w.clean.Append(t.Context(), w.commit(byte(101+i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	key := meta.PageKey(segID, 0)
	if _, err := w.meta.Apply(t.Context(), meta.Delete{Key: key, If: meta.Present(), Kind: meta.KindPage}); err != nil {
		t.Fatal("the others have rolled, so the page is there: ", err)
	}
	plan.Release()
	if _, err := w.meta.Get(t.Context(), key); !queue.Is(err, queue.KindNotFound) {
		t.Errorf("the late roll brought the page back: %v", err)
	}
}

// deafStore answers every op with an error of its own.
type deafStore struct {
	meta.Store
	err error
}

func (d deafStore) Apply(context.Context, meta.Op) (meta.Result, error) { return meta.Result{}, d.err }

// TestStoreThatWouldNot: why a store refuses for as long as a commit tries is what the caller is told.
func TestStoreThatWouldNot(t *testing.T) {
	w := newWorld(t)
	for _, kind := range []queue.Kind{queue.KindUnavailable, queue.KindThrottled} {
		own := &queue.Error{Op: "commit", Kind: kind, Message: "the file was moved"}
		_, err := w.log(deafStore{w.meta, own}, w.blob).Append(t.Context(), w.commit(1, 1))
		if !queue.Is(err, kind) || !errors.Is(err, own) {
			t.Errorf("%v becomes %v", own, err)
		}
	}
}

// hooked calls before with the number of each append.
type hooked struct {
	meta.Store
	before func(n int)
	n      *int
}

func (h hooked) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if _, ok := op.(meta.Append); ok {
		*h.n++
		h.before(*h.n)
	}
	return h.Store.Apply(ctx, op)
}

// TestInTimeForTheSeal: a request that was looked for in vain arrives after all, before the segment is
// sealed. The retry meets the seal; were it told so, the caller would append elsewhere, a second time.
func TestInTimeForTheSeal(t *testing.T) {
	for _, rolled := range []bool{false, true} {
		t.Run(fmt.Sprintf("rolled %v", rolled), func(t *testing.T) {
			w := newWorld(t)
			plan := fault.Script(fault.Options{}, fault.Rule{Op: "append", Nth: 1, Fault: fault.Late})
			seal := func(n int) {
				if n != 2 {
					return
				}
				plan.Release()
				if head, err := w.clean.Head(t.Context(), segID); err != nil || rolled && w.clean.Roll(t.Context(), head) != nil {
					t.Fatal("not rolled")
				}
				if _, err := w.meta.Apply(t.Context(), meta.Seal{Segment: segID, Epoch: 1}); err != nil {
					t.Fatal(err)
				}
			}
			log := w.log(hooked{fault.Meta(w.meta, plan), seal, new(int)}, w.blob)
			done, err := log.Append(t.Context(), w.commit(1, 3))
			if err != nil || done.Offset != 0 || done.Count != 3 || done.Repeated {
				t.Errorf("%+v, %v", done, err)
			}
		})
	}
}

// TestUnknownStaysUnknown: a request of unknown outcome takes effect and is rolled away; the retry is
// refused for that, and then the store does not answer. That is not "nothing was appended".
func TestUnknownStaysUnknown(t *testing.T) {
	w := newWorld(t)
	plan := fault.Script(fault.Options{},
		fault.Rule{Op: "append", Nth: 1, Fault: fault.Late}, fault.Rule{Op: "get", Nth: 2, Fault: fault.FailBefore})
	roll := func(n int) {
		if n != 2 {
			return
		}
		plan.Release()
		if head, err := w.clean.Head(t.Context(), segID); err != nil || w.clean.Roll(t.Context(), head) != nil {
			t.Fatal("not rolled")
		}
	}
	log := w.log(hooked{fault.Meta(w.meta, plan), roll, new(int)}, w.blob)
	if _, err := log.Append(t.Context(), w.commit(1, 3)); !queue.Is(err, queue.KindOutcomeUnknown) {
		t.Error(err)
	}
}
