package cost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Usage is what a run counted.
type Usage struct {
	// Messages were produced, and then consumed by each group.
	Messages int64 `json:"messages"`
	// Produce, Consume and Compact are the functions'.
	Produce FunctionUsage `json:"produce"`
	Consume FunctionUsage `json:"consume"`
	Compact FunctionUsage `json:"compact"`
	// ObjectBytes and TableBytes are what is kept of the messages in the end: objects, and refs in
	// heads and pages.
	ObjectBytes int64 `json:"object_bytes"`
	TableBytes  int64 `json:"table_bytes"`
}

// FunctionUsage is one function's.
type FunctionUsage struct {
	// Calls of the API, APIUnits what API Gateway counts them as, CallBytes what went in and out.
	Calls     int64          `json:"calls"`
	APIUnits  int64          `json:"api_units"`
	CallBytes int64          `json:"call_bytes"`
	Meter     meter.Snapshot `json:"meter"`
	Beside    Beside         `json:"beside"`
}

const (
	topicName = "t"
	delayTime = time.Minute
	// groupBytes and groupPages are what fills a group of the compactor: 8 MiB of bodies, or 1,500 refs.
	groupBytes = 8 << 20
	groupPages = (1500 + queue.RollRefs - 1) / queue.RollRefs
	// leastRolls of each segment are made for the counts to be smooth, where a group has fewer pages, and
	// runBytes of bodies are not more than that.
	leastRolls = 8
	runBytes   = 64 << 20
	// runWork bounds a run, and mostWork what the shortest run of a workload may take: some ten seconds.
	runWork   = 1_000_000
	mostWork  = 4_000_000
	claimWork = 300
	callWork  = 200
	// cacheBytes is a function's cache (functions/internal/host).
	cacheBytes = 8 << 20
	// apiUnit is what API Gateway counts as one request.
	apiUnit = 512 << 10
	// callHead is about what a call's headers and an answer without bodies take, perMessage what a
	// message takes beside its body.
	callHead   = 500
	perMessage = 40
)

// function is one function of the run, with its own meter.
type function struct {
	*assembly.System
	meter  *meter.Meter
	table  *table
	bucket *bucket
	usage  FunctionUsage
}

func (f *function) call(in, out int) {
	f.usage.Calls++
	f.usage.APIUnits += units(max(in, out), apiUnit)
	f.usage.CallBytes += int64(in + out)
}

func (f *function) used() FunctionUsage {
	u := f.usage
	u.Meter, u.Beside = f.meter.Snapshot(), f.table.besides()
	u.Beside.Puts = f.bucket.extra.Load()
	return u
}

// world is the run's deployment: stores in memory, a clock that the run moves, ids from a seed.
type world struct {
	Workload
	now     time.Time
	ids     *queue.IDs
	records meta.Store
	objects blob.Store
	litter  *litter

	produce, consume, compact *function
	// bare is for what is not counted.
	bare     *assembly.System
	topic    *topics.Map
	messages int64
	body     []byte
	// ready are the messages that each group has still to claim, later those that are delayed.
	ready []int
	later []delayed
}

type delayed struct {
	at time.Time
	n  int
}

// seeded is a source of ids that gives the same in each run. Safe for concurrent use.
type seeded struct {
	mu sync.Mutex // guards r
	r  *rand.ChaCha8
}

func (s *seeded) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.Read(b)
}

// noURLs presigns nothing: no call of a run needs it.
type noURLs struct{}

var errByReference = errors.New("the run gives nothing by reference")

func (noURLs) PresignPut(context.Context, string, blob.Terms, time.Time) (blob.Request, error) {
	return blob.Request{}, errByReference
}

func (noURLs) PresignGet(context.Context, string, time.Time) (blob.Request, error) {
	return blob.Request{}, errByReference
}

func newWorld(w Workload) *world {
	v := &world{
		Workload: w, now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), ids: queue.NewIDs(&seeded{r: rand.NewChaCha8([32]byte{1})}),
		records: memmeta.New(nil), litter: &litter{entries: make(map[meta.Key]int)},
		body: make([]byte, w.Size), ready: make([]int, w.Groups),
	}
	v.objects = memblob.New(nil, v.clock, memblob.Options{IDs: v.ids})
	v.produce, v.consume, v.compact = v.function(), v.function(), v.function()
	v.bare = v.system(v.records, v.objects)
	return v
}

func (v *world) clock() time.Time { return v.now }

func (v *world) function() *function {
	f := &function{meter: meter.New(), table: &table{Store: v.records, litter: v.litter}, bucket: &bucket{Store: v.objects}}
	f.System = v.system(f.meter.Meta(f.table), f.meter.Blob(f.bucket))
	return f
}

func (v *world) system(m meta.Store, b blob.Store) *assembly.System {
	return assembly.New(assembly.Deps{
		Meta: m, Blob: b, Presigner: noURLs{}, IDs: v.ids, Clock: v.clock, CacheBytes: cacheBytes, Marked: true,
	})
}

// Run puts a workload through the system, as much of it as lets rolls and compaction show in their
// proportion, and counts. The workload must have passed Check.
func Run(ctx context.Context, w Workload) (*Usage, error) {
	v := newWorld(w)
	if err := v.prepare(ctx); err != nil {
		return nil, fmt.Errorf("prepare the run: %w", err)
	}
	for i := range v.calls() {
		if err := v.step(ctx, i); err != nil {
			return nil, err
		}
	}
	v.now = v.now.Add(2 * delayTime)
	if err := v.drain(ctx, 1); err != nil {
		return nil, err
	}
	if err := v.keepOrder(ctx); err != nil {
		return nil, fmt.Errorf("compact: %w", err)
	}
	u := &Usage{Messages: v.messages, Produce: v.produce.used(), Consume: v.consume.used(), Compact: v.compact.used()}
	return u, v.weigh(ctx, u)
}

// perRoll is how many calls make each segment roll once, and commit the bodies' bytes of one ref.
func (w *Workload) perRoll() (calls, commit int) {
	calls, commit = queue.RollRefs, w.call()*w.Size
	if w.Keyed && w.call() >= w.Segments {
		return calls, commit / w.Segments
	}
	return calls * w.Segments, commit
}

// calls is how many produce calls the run makes: so many that each segment fills whole pages, and the
// pages whole groups of the compactor, or rolls and compaction would show too often or too seldom. Of
// batches so large, or claims so small, that this would take minutes it makes fewer, at least one page of
// each segment.
func (v *world) calls() int {
	perRoll, commit := v.perRoll()
	page := max(1, queue.RollRefs*commit)
	group := min((groupBytes+page-1)/page, groupPages)
	rolls := group * max(1, min(leastRolls/group, runBytes/(page*group)))
	return perRoll * min(rolls, max(1, runWork/(perRoll*v.work())))
}

// work is what a produce call makes the run do, with a message as one.
func (w *Workload) work() int {
	claims := (w.call() + w.claim() - 1) / w.claim()
	return w.call()*(1+w.Groups) + claims*w.Groups*claimWork + callWork
}

func (v *world) prepare(ctx context.Context) error {
	config := topics.Config{MinSegments: v.Segments}
	if v.Delayed > 0 {
		config.DefaultDelay = delayTime
	}
	if _, _, err := v.bare.Topics.Create(ctx, topicName, config); err != nil {
		return err
	}
	for g := range v.Groups {
		if _, _, err := v.bare.Topics.CreateSubscription(ctx, topicName, groupName(g), topics.SubscriptionConfig{}); err != nil {
			return err
		}
	}
	var err error
	v.topic, err = v.bare.Topics.Reload(ctx, topicName)
	return err
}

func groupName(g int) string { return fmt.Sprintf("group-%d", g) }

// step makes one produce call, and the claims that it makes possible.
func (v *world) step(ctx context.Context, i int) error {
	n := v.call()
	data, late, err := v.encode(i, n)
	if err != nil {
		return err
	}
	req := produce.BatchRequest{Topic: topicName, Data: data}
	if v.Producers > 0 {
		req.Guard = produce.Guard{
			ProducerID: fmt.Sprintf("producer-%08d", i%v.Producers), Sequence: uint64(i/v.Producers) + 1, // #nosec G115 -- not negative
		}
	}
	answer, err := v.produce.Produce.ProduceBatch(ctx, req)
	if err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	for j := range answer.Runs {
		if answer.Runs[j].Err != nil {
			return fmt.Errorf("produce: %w", answer.Runs[j].Err)
		}
	}
	v.produce.call(callHead+len(data), callHead)
	v.messages += int64(n)
	for g := range v.ready {
		v.ready[g] += n - late
	}
	if late > 0 {
		v.later = append(v.later, delayed{v.now.Add(delayTime), late})
	}
	v.now = v.now.Add(time.Duration(float64(n) / v.Rate * float64(time.Second)))
	return v.drain(ctx, v.claim())
}

// encode makes the batch of call i, and says how many of its messages are delayed. Calls without keys go
// to the segments in turn.
func (v *world) encode(i, n int) (data []byte, late int, err error) {
	enc := batch.NewEncoder(batch.Options{})
	seg := v.topic.Open[i%len(v.topic.Open)]
	var key [8]byte
	// Delayed messages are spread evenly over the run.
	due := func(k int) int { return int(float64(k) * v.Delayed) }
	for j := range n {
		rec := batch.Record{Slot: queue.Slot(seg.Range.Lo), Body: v.body} // #nosec G115 -- below queue.Slots
		k := i*n + j
		if v.Keyed {
			binary.BigEndian.PutUint64(key[:], uint64(k)) // #nosec G115 -- not negative
			rec.Key, rec.Slot = append([]byte(nil), key[:]...), queue.SlotOf(key[:])
		}
		if v.Delayed > 0 {
			rec.HasDelay = true
			if due(k+1) > due(k) {
				rec.Delay = delayTime
				late++
			}
		}
		if err := enc.Add(&rec); err != nil {
			return nil, 0, err
		}
	}
	data, err = enc.Finish(nil, v.ids.Nonce())
	return data, late, err
}

// drain lets each group claim and ack while it has at least so many messages to claim.
func (v *world) drain(ctx context.Context, atLeast int) error {
	for len(v.later) > 0 && !v.later[0].at.After(v.now) {
		for g := range v.ready {
			v.ready[g] += v.later[0].n
		}
		v.later = v.later[1:]
	}
	for g := range v.ready {
		for v.ready[g] >= atLeast {
			n, err := v.take(ctx, groupName(g))
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("claim: nothing came, with %d messages to claim", v.ready[g])
			}
			v.ready[g] -= n
		}
	}
	return nil
}

// take claims and acks once.
func (v *world) take(ctx context.Context, group string) (int, error) {
	got, err := v.consume.Consume.Claim(ctx, consume.ClaimRequest{Topic: topicName, Subscription: group, MaxMessages: v.claim()})
	if err != nil {
		return 0, fmt.Errorf("claim: %w", err)
	}
	n := 0
	var receipts []queue.Receipt
	for i := range got.Deliveries {
		d := &got.Deliveries[i]
		if d.Presigned != nil {
			return 0, errByReference
		}
		n += d.Count
		receipts = append(receipts, queue.Receipt{Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count)}) // #nosec G115 -- a count
	}
	v.consume.call(callHead, callHead+n*(v.Size+perMessage))
	if n == 0 {
		return 0, nil
	}
	lost, err := v.consume.Consume.Ack(ctx, topicName, group, receipts)
	if err = errors.Join(append(lost, err)...); err != nil {
		return 0, fmt.Errorf("ack: %w", err)
	}
	v.consume.call(callHead+len(receipts)*perMessage, callHead)
	return n, nil
}

// keepOrder compacts what was rolled, and deletes what that replaced. One roll in queue.WorkRolls leaves a
// note; for what came after the last one, a note is put, so that no page is left out.
func (v *world) keepOrder(ctx context.Context) error {
	v.now = v.now.Add(queue.CompactAge + 2*queue.ClockSlack)
	for _, seg := range v.topic.Segments {
		work := &meta.Work{Due: queue.MillisOf(v.now), Segment: seg.ID}
		if _, err := v.records.Apply(ctx, meta.Put{Record: work, Version: meta.NewVersion(v.ids)}); err != nil {
			return err
		}
	}
	for range 2 {
		if _, err := v.compact.Compact.Run(ctx); err != nil {
			return err
		}
		v.now = v.now.Add(queue.GracePeriod + 2*queue.ClockSlack)
	}
	return nil
}

// weigh adds up what is kept.
func (v *world) weigh(ctx context.Context, u *Usage) error {
	for _, prefix := range []string{blob.PrefixBatches, blob.PrefixSegments} {
		for after, more := "", true; more; {
			page, err := v.objects.List(ctx, prefix, after, 1000)
			if err != nil {
				return err
			}
			for _, o := range page.Objects {
				u.ObjectBytes += o.Size
				after = o.Key
			}
			more = page.More
		}
	}
	plain := &table{Store: v.records, litter: v.litter}
	for _, seg := range v.topic.Segments {
		q := meta.Range{PK: meta.HeadPK(seg.ID), Limit: meta.MaxQueryLimit}
		for more := true; more; {
			page, err := plain.Query(ctx, q)
			if err != nil {
				return err
			}
			for i := range page.Items {
				record := page.Items[i].Record
				u.TableBytes += int64(page.Items[i].Size)
				q.From = meta.After(record.Key().SK)
				for _, ref := range refsOf(record) {
					if !ref.Inline {
						continue
					}
					payload, err := plain.Get(ctx, meta.PayloadKey(ref.Object))
					if err != nil {
						return err
					}
					u.TableBytes += int64(payload.Size)
				}
			}
			more = page.More
		}
	}
	return nil
}

func refsOf(r meta.Record) []meta.Ref {
	switch r := r.(type) {
	case *meta.Head:
		return r.Tail
	case *meta.RefPage:
		return r.Refs
	}
	return nil
}
