package latency_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/latency"
	"github.com/spillway-mq/spillway/pkg/later"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// consumer is who waits for the messages of a scenario.
type consumer int

const (
	// nobody: only the acknowledgement is timed.
	nobody consumer = iota
	// within: a long poll in the process that produces, which signals it.
	within
	// apart: a long poll in another process, which finds messages by looking.
	apart
)

// scenario is one load on one set of stores.
type scenario struct {
	// batch is messages of a call, of messageBytes each.
	batch  int
	bodies latency.BucketFigures
	// rate is calls a second, at random instants, each made when it is due; 0 is one call after the other.
	rate float64
	// processes is how many take the calls; 0 is 1.
	processes int
	calls     int
	who       consumer
	// refused: calls may be, for a load that is too much.
	refused bool
}

const (
	messageBytes = 1000
	topicName    = "orders"
	groupName    = "billing"
	// seed is what all draws follow from.
	seed = 1
)

// spread is what came of a scenario: durations in order of size.
type spread []time.Duration

func (s spread) at(p float64) time.Duration {
	return s[min(len(s)-1, int(p*float64(len(s))))]
}

// outcome is what a scenario gave.
type outcome struct {
	acknowledged, received spread
	throttles              int
	// unrolled are the acknowledgements of calls that met no roll; only of calls one after the other.
	unrolled spread
}

// world is the deployment of a scenario.
type world struct {
	t *testing.T
	scenario
	table   *latency.Table
	objects *memblob.Store
	// producers take the calls in turn.
	producers []*assembly.System
	consumer  *assembly.System
	later     later.Work
	// data is the batch that every call sends.
	data []byte

	mu sync.Mutex // guards what follows
	// began and claimed are instants by offset of a call's first message.
	began, claimed map[queue.Offset]time.Time
	took, unrolled spread
}

// void keeps no bodies: where nobody reads them they would only fill the memory.
type void struct{ blob.Store }

func (void) Create(_ context.Context, prefix string, _ []byte) (string, error) {
	return prefix + "void", nil
}

// thin keeps no payloads.
type thin struct{ meta.Store }

func (s thin) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if p, ok := op.(meta.Put); ok {
		if _, ok := p.Record.(*meta.Payload); ok {
			return meta.Result{}, nil
		}
	}
	return s.Store.Apply(ctx, op)
}

// simulate runs a scenario in simulated time.
func simulate(t *testing.T, s scenario) (out outcome) {
	t.Helper()
	// Calls that waited for one read of the topic's map go on at one instant. On one processor they do so in
	// the order in which they came.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) { out = newWorld(t, s).run() })
	return out
}

func encode(t *testing.T, n int) []byte {
	enc := batch.NewEncoder(batch.Options{})
	for range n {
		if err := enc.Add(&batch.Record{Body: make([]byte, messageBytes)}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := enc.Finish(nil, [batch.NonceSize]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func newWorld(t *testing.T, s scenario) *world {
	w := &world{
		t: t, scenario: s, data: encode(t, s.batch),
		began: make(map[queue.Offset]time.Time), claimed: make(map[queue.Offset]time.Time),
	}
	w.objects = memblob.New(t, time.Now, memblob.Options{IDs: newIDs(1)})
	var records meta.Store = memmeta.New(t)
	var objects blob.Store = w.objects
	bare := assembly.New(assembly.Deps{Meta: records, Blob: objects, IDs: newIDs(2)})
	if _, _, err := bare.Topics.Create(t.Context(), topicName, topics.Config{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := bare.Topics.CreateSubscription(t.Context(), topicName, groupName, topics.SubscriptionConfig{}); err != nil {
		t.Fatal(err)
	}
	if s.who == nobody {
		records, objects = thin{records}, void{objects}
	}
	w.table = latency.NewTable(records, latency.DynamoDB(), latency.PartitionUnits, latency.NewSource(seed, 1))
	bucket := latency.NewBucket(objects, s.bodies, latency.NewSource(seed, 2))
	system := func(n byte) *assembly.System {
		return assembly.New(assembly.Deps{Meta: w.table, Blob: bucket, IDs: newIDs(n), Marked: true, Later: w.later.Go})
	}
	for i := range max(1, s.processes) {
		w.producers = append(w.producers, system(byte(4+i)))
	}
	if w.consumer = w.producers[0]; s.who == apart {
		w.consumer = system(3)
	}
	return w
}

// Callers' numbers: what each draws from.
const (
	callerArrivals = 10
	callerConsumer = 11
	callerCalls    = 100
)

func (w *world) run() outcome {
	var calls, waiting sync.WaitGroup
	ctx, stop := context.WithCancel(w.t.Context())
	if w.who != nobody {
		waiting.Go(func() { w.consume(latency.With(ctx, latency.NewSource(seed, callerConsumer))) })
	}
	arrivals := rand.New(rand.NewPCG(seed, callerArrivals)) // #nosec G404 -- repeatable
	for i := range w.calls {
		from := latency.NewSource(seed, callerCalls+uint64(i)) // #nosec G115 -- small
		producer := w.producers[i%len(w.producers)]
		if w.rate == 0 {
			w.call(latency.With(ctx, from), producer)
			continue
		}
		time.Sleep(time.Duration(arrivals.ExpFloat64() / w.rate * float64(time.Second)))
		calls.Go(func() { w.call(latency.With(ctx, from), producer) })
	}
	calls.Wait()
	for w.who != nobody && !w.received() {
		time.Sleep(time.Second)
	}
	stop()
	waiting.Wait()
	if err := w.later.Wait(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	return w.outcome()
}

// call makes one produce call, and times it.
func (w *world) call(ctx context.Context, producer *assembly.System) {
	// The roll that the call before has left begins as soon as this one waits for a store.
	before := w.table.Counts().Transactions
	began := time.Now()
	answer, err := producer.Produce.ProduceBatch(ctx, produce.BatchRequest{Topic: topicName, Data: w.data})
	took := time.Since(began)
	if err == nil {
		err = answer.Runs[0].Err
	}
	if err != nil {
		if !w.refused || !queue.Retryable(err) {
			w.t.Errorf("produce: %v", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.took = append(w.took, took)
	if w.rate == 0 && w.table.Counts().Transactions == before {
		w.unrolled = append(w.unrolled, took)
	}
	w.began[answer.Runs[0].ID.Offset] = began
}

// received says that the consumer has had the messages of all calls.
func (w *world) received() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.claimed) >= len(w.began)
}

// consume waits by long polls, and acknowledges what it gets, one after the other.
func (w *world) consume(ctx context.Context) {
	for ctx.Err() == nil {
		got, err := w.consumer.Consume.Claim(ctx, consume.ClaimRequest{
			Topic: topicName, Subscription: groupName, MaxMessages: queue.MaxClaimMessages, Wait: queue.MaxWait,
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.t.Errorf("claim: %v", err)
			return
		}
		now := time.Now()
		var receipts []queue.Receipt
		w.mu.Lock()
		for i := range got.Deliveries {
			d := &got.Deliveries[i]
			for off := d.Offset; off < d.Offset+queue.Offset(d.Count); off += queue.Offset(w.batch) { // #nosec G115 -- small
				w.claimed[off] = now
			}
			receipts = append(receipts, queue.Receipt{Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count)}) // #nosec G115 -- small
			if !d.Ref.Inline {
				if err := w.objects.Delete(ctx, d.Ref.Object); err != nil { // room for the next
					w.t.Error(err)
				}
			}
		}
		w.mu.Unlock()
		if len(receipts) == 0 {
			continue
		}
		if _, err := w.consumer.Consume.Ack(ctx, topicName, groupName, receipts); err != nil && ctx.Err() == nil {
			w.t.Errorf("ack: %v", err)
			return
		}
	}
}

func (w *world) outcome() outcome {
	counts := w.table.Counts()
	out := outcome{acknowledged: w.took, unrolled: w.unrolled, throttles: counts.Throttles}
	for off, began := range w.began {
		if claimed, ok := w.claimed[off]; ok {
			out.received = append(out.received, claimed.Sub(began))
		}
	}
	slices.Sort(out.acknowledged)
	slices.Sort(out.received)
	slices.Sort(out.unrolled)
	return out
}
