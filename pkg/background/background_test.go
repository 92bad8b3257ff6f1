package background_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/background"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// process is one of a fleet, without its HTTP server.
type process struct {
	*assembly.System
	meter *meter.Meter
	wire  *wire
	log   *lockedBuffer
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// wire is the way to the store, which can be cut: to the others a process behind it looks killed.
type wire struct {
	meta.Store
	cut atomic.Bool
}

func (w *wire) down() error {
	if w.cut.Load() {
		return &queue.Error{Op: "call", Kind: queue.KindUnavailable, Message: "the wire is cut"}
	}
	return nil
}

func (w *wire) Get(ctx context.Context, key meta.Key) (meta.Item, error) {
	if err := w.down(); err != nil {
		return meta.Item{}, err
	}
	return w.Store.Get(ctx, key)
}

func (w *wire) GetAll(ctx context.Context, keys []meta.Key) ([]meta.Item, error) {
	if err := w.down(); err != nil {
		return nil, err
	}
	return w.Store.GetAll(ctx, keys)
}

func (w *wire) Query(ctx context.Context, q meta.Range) (meta.Page, error) {
	if err := w.down(); err != nil {
		return meta.Page{}, err
	}
	return w.Store.Query(ctx, q)
}

func (w *wire) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if err := w.down(); err != nil {
		return meta.Result{}, err
	}
	return w.Store.Apply(ctx, op)
}

func (w *wire) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if err := w.down(); err != nil {
		return nil, err
	}
	return w.Store.Transact(ctx, ops)
}

// lockedBuffer is a log that several goroutines write.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.buf.String(), text)
}

type presigner struct{}

func (presigner) PresignPut(context.Context, string, blob.Terms, time.Time) (blob.Request, error) {
	return blob.Request{}, nil
}

func (presigner) PresignGet(context.Context, string, time.Time) (blob.Request, error) {
	return blob.Request{}, nil
}

// newFleet starts processes on stores of their own, each a while after the one before it.
func newFleet(t *testing.T, n int) []*process {
	t.Helper()
	records, objects := memmeta.New(t), memblob.New(t, time.Now, memblob.Options{})
	var fleet []*process
	for range n {
		p := &process{meter: meter.New(), wire: &wire{Store: records}, log: new(lockedBuffer)}
		agenda, ids := delay.NewAgenda(), queue.NewIDs(nil)
		store := agenda.Watch(p.meter.Meta(p.wire))
		logger := slog.New(slog.NewTextHandler(p.log, nil))
		p.System = assembly.New(assembly.Deps{Meta: store, Blob: p.meter.Blob(objects), Presigner: presigner{}, IDs: ids, Logger: logger})
		w := background.New(background.Deps{
			Delay: p.Delay, Compact: p.Compact, Scale: p.Scale, Agenda: agenda, Leases: lease.New(store, ids, time.Now), Logger: logger,
		})
		ctx, stop := context.WithCancel(t.Context())
		p.stop = stop
		p.ended.Go(func() { w.RunInFleet(ctx) })
		fleet = append(fleet, p)
		time.Sleep(7 * time.Second)
	}
	return fleet
}

func end(fleet []*process) {
	for _, p := range fleet {
		p.stop()
		p.ended.Wait()
	}
}

func (p *process) topic(t *testing.T, name string, cfg topics.Config) {
	t.Helper()
	if _, _, err := p.Topics.Create(t.Context(), name, cfg); err != nil {
		t.Fatal(err)
	}
}

// later produces a message that waits for the topic's delay.
func (p *process) later(t *testing.T, topic string) {
	t.Helper()
	a, err := p.Produce.Produce(t.Context(), produce.Request{Topic: topic, Messages: []produce.Message{{Body: []byte("x")}}})
	if err != nil || len(a.Runs) != 1 || a.Runs[0].Err != nil || a.Runs[0].Delayed == nil {
		t.Fatalf("produce: %+v, %v", a, err)
	}
}

// promotedWithin says how long it takes until nothing is delayed any more, to the second.
func (p *process) promotedWithin(t *testing.T, topic string, patience time.Duration) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(time.Second) {
		n, _, err := p.Delay.Count(t.Context(), topic, 10)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); n == 0 || took > patience {
			if n != 0 {
				t.Errorf("%d messages wait after %v", n, took)
			}
			return took
		}
	}
}

const leads = "leading:"

func leaders(fleet []*process) (which []int) {
	for i, p := range fleet {
		if p.log.count(leads) > p.log.count("another process leads now") {
			which = append(which, i)
		}
	}
	return which
}

// TestIdleFleet: an idle process costs one read a LeaseTTL, and the leader a few a minute and 2 to 4 for each topic.
func TestIdleFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, 4)
		defer end(fleet)
		for _, name := range []string{"a", "b"} {
			fleet[1].topic(t, name, topics.Config{})
		}
		fleet[1].topic(t, "later", topics.Config{DefaultDelay: time.Second})
		if which := leaders(fleet); len(which) != 1 || which[0] != 0 {
			t.Fatalf("leaders: %v, want the first process", which)
		}
		time.Sleep(background.LeaseTTL)
		var before []meter.Snapshot
		for _, p := range fleet {
			before = append(before, p.meter.Snapshot())
		}
		const minutes = 60
		time.Sleep(minutes * time.Minute)
		for i, p := range fleet {
			spent := p.meter.Snapshot().Sub(before[i])
			perMinute := float64(spent.Calls()) / minutes
			t.Logf("process %d: %.2f calls a minute, %d units read, %d written in %d minutes", i, perMinute, spent.Total().ReadUnits, spent.Total().WriteUnits, minutes)
			// The leader: 2 renewals, 1 listing, 2 reads a topic and 2 more if it is delayed, 1 query for
			// topics under load, half a query for work; and once an hour the sweep, whose 64 queries come
			// every six hours.
			if i == 0 && (perMinute < 12.5 || perMinute > 13.8) || i > 0 && perMinute > 1.05 {
				t.Errorf("process %d makes %.2f calls a minute:\n%v", i, perMinute, spent)
			}
		}
		if which := leaders(fleet); len(which) != 1 || which[0] != 0 {
			t.Errorf("leaders: %v", which)
		}
	})
}

// TestOthersEntries: a delayed message that nobody claims, and that another process than the leader took in,
// is promoted by the next review; one behind it on its topic on time.
func TestOthersEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, 3)
		defer end(fleet)
		fleet[2].topic(t, "later", topics.Config{DefaultDelay: 2 * time.Second})
		fleet[2].topic(t, "much.later", topics.Config{DefaultDelay: 5 * time.Minute})
		fleet[1].later(t, "much.later")
		fleet[2].later(t, "later")
		if took := fleet[2].promotedWithin(t, "later", time.Hour); took > background.FleetReview+2*time.Second {
			t.Errorf("promoted after %v", took)
		}
		if took := fleet[1].promotedWithin(t, "much.later", time.Hour); took > 5*time.Minute+2*time.Second {
			t.Errorf("what the review had seen was promoted %v later", took)
		}
	})
}

// TestLeaderKilled: another leads within twice LeaseTTL, and what the dead one would have promoted is.
func TestLeaderKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, 3)
		defer end(fleet)
		fleet[0].topic(t, "later", topics.Config{DefaultDelay: 10 * time.Second})
		time.Sleep(100 * time.Second)
		fleet[0].later(t, "later")
		fleet[0].wire.cut.Store(true)
		took := fleet[1].promotedWithin(t, "later", time.Hour)
		t.Logf("promoted %v after the leader was cut off", took)
		if took > 2*background.LeaseTTL+2*time.Second {
			t.Errorf("promoted only after %v", took)
		}
		time.Sleep(time.Minute)
		if which := leaders(fleet); len(which) != 1 || which[0] == 0 {
			t.Errorf("leaders: %v, want one, and not the one that is cut off", which)
		}
		// It comes back and follows.
		fleet[0].wire.cut.Store(false)
		time.Sleep(5 * time.Minute)
		before := fleet[0].meter.Snapshot()
		time.Sleep(10 * time.Minute)
		if n := fleet[0].meter.Snapshot().Sub(before).Calls(); n > 11 {
			t.Errorf("a leader that was replaced goes on: %d calls in 10 minutes", n)
		}
	})
}

// TestLeaderStops: a leader that is told to stop lets the others begin at their next look.
func TestLeaderStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fleet := newFleet(t, 3)
		defer end(fleet)
		fleet[0].stop()
		fleet[0].ended.Wait()
		time.Sleep(background.LeaseTTL + time.Second)
		if which := leaders(fleet[1:]); len(which) != 1 {
			t.Errorf("leaders after a minute: %v", which)
		}
	})
}
