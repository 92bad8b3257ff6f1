package flood_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const topic = "orders"

// alike is the last byte of a body that all messages of its batch follow by number: big batches are of one
// key and numbered without gaps, so the first message tells of all.
const alike = 0xff

// plan is what load is offered, and what the store allows.
type plan struct {
	// limit is the write units of a partition key, policy what one segment should carry.
	limit  float64
	target int64
	// calm and flood are how long the first two phases take; the third ends when the leader has nothing to
	// watch any more.
	calm, flood time.Duration
	// single producers send a message a second in the first phase, and in the second a call a second of small
	// messages of four keys. In the second phase big producers send a batch of big messages of one key each.
	single, small, bigs, big int
	window                   time.Duration
}

// offered is the messages a second of the first and of the second phase.
func (p *plan) offered() (calm, flood int) { return p.single, p.single*p.small + p.bigs*p.big }

const (
	processes = 16
	// guarded is how many of the single producers send under a sequence.
	guarded = 8
	// leaderEvery is the leader's schedule, reaction how long one that is woken takes to begin, and leaderRest
	// how long after a run it is not woken.
	leaderEvery = time.Minute
	reaction    = 3 * time.Second
	leaderRest  = 10 * time.Second
	// blocked is how far behind a producer is when its application has to wait: what it then does not send
	// is not offered.
	blocked = 5 * time.Second
)

// run is one flood.
type run struct {
	t     *testing.T
	plan  plan
	store *strict
	procs []*assembly.System
	lead  *assembly.System
	wake  chan struct{}
	began time.Time

	mu sync.Mutex // guards what follows
	// rng is for the producers' pauses.
	rng *rand.Rand
	// acked is the number of messages of each key that were acknowledged.
	acked  map[uint32]uint32
	curve  []*window
	rounds []round
	missed int
}

// window is one point of the curve.
type window struct {
	at             time.Duration
	offered, acked int
	took           []time.Duration
	p50, p99       time.Duration
	segments       int
	throttles      int
}

// round is one run of the leader.
type round struct {
	at  time.Duration
	rep scale.Report
}

func newRun(t *testing.T, p plan) *run {
	r := &run{
		t: t, plan: p, store: newStrict(t, p.limit, 1), wake: make(chan struct{}, 1), began: time.Now(),
		rng: rand.New(rand.NewPCG(2, 2)), acked: make(map[uint32]uint32), // #nosec G404 -- repeatable
	}
	bodies := memblob.New(t, time.Now, memblob.Options{})
	for i := range processes + 1 {
		r.procs = append(r.procs, assembly.New(assembly.Deps{
			Meta: r.store, Blob: bodies, IDs: newIDs(byte(i)), Later: afterwards(t),
			Wake: func() {
				select {
				case r.wake <- struct{}{}:
				default:
				}
			},
		}))
	}
	r.lead, r.procs = r.procs[processes], r.procs[:processes]
	defer func() { r.began = time.Now() }()
	if _, _, err := r.lead.Topics.Create(t.Context(), topic, topics.Config{TargetMessages: p.target}); err != nil {
		t.Fatal(err)
	}
	return r
}

// make runs all phases.
func (r *run) make() {
	ctx, stop := context.WithCancel(context.Background())
	var work, watch sync.WaitGroup
	done := make(chan struct{})
	calmEnd := r.began.Add(r.plan.calm)
	floodEnd := calmEnd.Add(r.plan.flood)
	for i := range r.plan.single {
		work.Go(func() { r.produce(ctx, i, calmEnd, floodEnd) })
	}
	for i := range r.plan.bigs {
		work.Go(func() { r.produce(ctx, r.plan.single+i, calmEnd, floodEnd) })
	}
	watch.Go(func() { r.leader(ctx, done) })
	watch.Go(func() { r.watch(done) })
	work.Wait()
	const patience = 4 * time.Hour
	for end := time.Now().Add(patience); !r.calm() && time.Now().Before(end); {
		time.Sleep(r.plan.window)
	}
	close(done)
	watch.Wait()
	stop()
}

// calm says that the leader found nothing to watch when it last ran, after the flood.
func (r *run) calm() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.rounds[len(r.rounds)-1]
	return last.rep.Watched == 0 && time.Since(r.began)-last.at < 2*leaderEvery
}

// leader runs each minute, and soon after it was woken.
func (r *run) leader(ctx context.Context, done chan struct{}) {
	tick := time.NewTicker(leaderEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		case <-r.wake:
			time.Sleep(max(reaction, time.Until(last.Add(leaderRest))))
		}
		last = time.Now()
		rep, err := r.lead.Scale.Run(ctx)
		if err != nil && !queue.Retryable(err) {
			r.t.Errorf("the leader: %v", err)
		}
		r.mu.Lock()
		r.rounds = append(r.rounds, round{time.Since(r.began), rep})
		r.mu.Unlock()
	}
}

// watch draws the curve.
func (r *run) watch(done chan struct{}) {
	throttles := 0
	for {
		select {
		case <-done:
			return
		case <-time.After(r.plan.window):
		}
		m, err := topics.New(topics.Deps{Meta: r.store.Store, IDs: queue.NewIDs(nil), Clock: time.Now}).Reload(context.Background(), topic)
		if err != nil {
			r.t.Error(err)
			return
		}
		now := r.store.Counts().Throttles
		r.mu.Lock()
		w := r.windowAt(time.Since(r.began) - time.Nanosecond)
		w.segments, w.throttles = len(m.Open), now-throttles
		slices.Sort(w.took)
		if n := len(w.took); n > 0 {
			w.p50, w.p99 = w.took[n/2], w.took[n*99/100]
		}
		w.took = nil
		r.mu.Unlock()
		throttles = now
	}
}

// windowAt finds the window of a time; r.mu is held.
func (r *run) windowAt(at time.Duration) *window {
	i := int(at / r.plan.window)
	for len(r.curve) <= i {
		r.curve = append(r.curve, &window{at: time.Duration(len(r.curve)+1) * r.plan.window})
	}
	return r.curve[i]
}

// produce is one producer: it makes one call after the other, and counts from when each was due.
func (r *run) produce(ctx context.Context, id int, calmEnd, floodEnd time.Time) {
	const every = time.Second
	next := make(map[uint32]uint32)
	due := r.began.Add(time.Duration(id) * every / time.Duration(r.plan.single+r.plan.bigs))
	if id >= r.plan.single {
		due = due.Add(r.plan.calm)
	}
	for call := uint64(1); due.Before(floodEnd); call++ {
		time.Sleep(time.Until(due))
		req := r.request(id, call, due.Before(calmEnd), next)
		r.mu.Lock()
		r.windowAt(due.Sub(r.began)).offered += len(req.Messages)
		r.mu.Unlock()
		r.send(ctx, id, req)
		r.took(due, req)
		for due = due.Add(every); time.Since(due) > blocked; due = due.Add(every) {
			r.mu.Lock()
			r.missed++
			r.mu.Unlock()
		}
	}
}

// request makes a producer's next call.
func (r *run) request(id int, call uint64, calm bool, next map[uint32]uint32) produce.Request {
	req := produce.Request{Topic: topic}
	n, keys, mark := r.plan.small, 4, byte(0)
	switch {
	case id >= r.plan.single:
		n, keys, mark = r.plan.big, 1, alike
	case calm:
		n, keys = 1, 1
	}
	if id < guarded {
		req.Guard = produce.Guard{ProducerID: fmt.Sprintf("p%d", id), Sequence: call}
	}
	for i := range n {
		key := uint32(4*id + i%keys) // #nosec G115 -- small
		next[key]++
		body := binary.BigEndian.AppendUint64(nil, uint64(key)<<40|uint64(next[key])<<8|uint64(mark))
		req.Messages = append(req.Messages, produce.Message{Key: fmt.Appendf(nil, "key %d", key), Body: body})
	}
	return req
}

// send makes a call until it succeeds, as a client does.
func (r *run) send(ctx context.Context, id int, req produce.Request) {
	all := req.Messages
	for try := 0; ; try++ {
		proc := r.procs[(id+try)%processes]
		answer, err := proc.Produce.Produce(ctx, req)
		left := req.Messages
		if err == nil {
			left = nil
			for _, run := range answer.Runs {
				if run.Err != nil {
					err = run.Err
					left = append(left, req.Messages[run.First:run.First+run.Count]...)
				}
			}
		}
		if err == nil {
			return
		}
		if !queue.Retryable(err) {
			r.t.Errorf("producer %d: %v", id, err)
			return
		}
		if req.Messages = left; req.Guard != (produce.Guard{}) {
			req.Messages = all
		}
		r.mu.Lock()
		pause := min(50*time.Millisecond<<min(try, 6), time.Second)/2 + time.Duration(r.rng.Int64N(int64(500*time.Millisecond)))
		r.mu.Unlock()
		time.Sleep(pause)
	}
}

// took notes an acknowledged call.
func (r *run) took(due time.Time, req produce.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.windowAt(time.Since(r.began))
	w.acked += len(req.Messages)
	w.took = append(w.took, time.Since(due))
	for i := range req.Messages {
		body := binary.BigEndian.Uint64(req.Messages[i].Body)
		r.acked[uint32(body>>40)] = uint32(body >> 8) // #nosec G115 -- key and number
	}
}
