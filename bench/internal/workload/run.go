package workload

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/process"
	"github.com/spillway-mq/spillway/bench/internal/result"
)

const (
	// warmTime is how long the warm-up sends, at scale 1 and above; leastWarm at any.
	warmTime  = 2 * time.Second
	leastWarm = 50 * time.Millisecond
	// defaultPatience is longer than any system here was seen to hold back what it has.
	defaultPatience = 20 * time.Second
	// tolerance of a delayed message that is early: servers keep times to milliseconds.
	tolerance = 2 * time.Millisecond
	// sampleEvery is how often the server's memory is looked at.
	sampleEvery = 100 * time.Millisecond
)

// Options say what to run on what.
type Options struct {
	Peer     peer.Peer
	Workload Workload
	Scale    float64
	Start    peer.StartOptions
	// Patience is how long nothing may arrive before what is missing counts as lost; 20 s unless set.
	Patience time.Duration
}

// Run starts the peer, puts the workload on it and stops it. What goes wrong is in the result.
func Run(ctx context.Context, o Options) result.Run {
	r := result.Run{Workload: o.Workload.Name, Peer: o.Peer.Name, Scale: o.Scale}
	server, err := o.Peer.Start(ctx, o.Start)
	if err != nil {
		r.Status = result.Line(result.NotRun, err)
		return r
	}
	defer server.Stop()
	r.Version = server.Version()
	w := o.Workload.scaled(o.Scale)
	queue, err := server.Queue(ctx, peer.Spec{
		Name: "bench", Groups: w.Groups, Size: w.Size, Batch: w.Batch, Delayed: w.Delay > 0, Reference: w.Reference,
	})
	if errors.Is(err, peer.ErrNoFeature) {
		r.Status = result.NoFeature + ": " + strings.TrimSuffix(err.Error(), ": "+peer.ErrNoFeature.Error())
		return r
	} else if err != nil {
		r.Status = result.Line(result.Failed, err)
		return r
	}
	run := &run{workload: w, queue: queue, pids: server.Pids(), began: time.Now(), patience: o.Patience}
	run.warm = max(time.Duration(float64(warmTime)*min(o.Scale, 1)), leastWarm)
	if run.patience == 0 {
		run.patience = defaultPatience
	}
	switch err := run.measure(ctx, &r); {
	case errors.Is(err, errSilent):
		r.Status = result.Line(result.Silent, err)
	case err != nil:
		r.Status = result.Line(result.Failed, err)
	}
	return r
}

type run struct {
	workload Workload
	queue    peer.Queue
	pids     []int
	warm     time.Duration
	patience time.Duration
	// began is what stamps count from.
	began  time.Time
	ledger *ledger
	// delay is that of messages now: the warm-up's is short.
	delay time.Duration
	// sent is when the last Send came back; closing the senders does not count.
	sent time.Duration
	// made counts senders, so that no two have the same number.
	made int

	// mu guards what follows.
	mu sync.Mutex
	// last is when a message was last acknowledged as received.
	last      time.Duration
	call, end []time.Duration
	early     int64
	// keep says that samples count; not during the warm-up.
	keep bool
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// measure fills in the result.
func (r *run) measure(ctx context.Context, into *result.Run) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	w := &r.workload
	if w.kind == trickle {
		w.Messages = int64(w.Time.Seconds() * float64(w.Rate))
	}
	// The warm-up has room for as many again; and at its end each sender has taken numbers that it did not use, in
	// addition to what the last batch left.
	r.ledger = newLedger(2*(w.Messages+int64(w.Senders*w.Batch)), w.Groups)
	stop, err := r.warmUp(ctx, fail)
	if err != nil {
		return err
	}
	defer func() { stop() }()
	r.delay = w.Delay
	r.samples(true)
	sample := startSampling(r.pids)
	before, err := r.used()
	if err != nil {
		return err
	}
	sentBefore, gotBefore, began := r.ledger.acknowledged.Load(), r.ledger.got(), r.now()
	if err := r.send(ctx, fail, w.Messages, w.Time); err != nil {
		return err
	}
	into.Sent = r.ledger.acknowledged.Load() - sentBefore
	into.In = perSecond(into.Sent, r.sent-began)
	if w.kind == backlog {
		began = r.now()
		if stop, err = r.receive(ctx, fail); err != nil {
			return err
		}
	}
	r.drain(ctx)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	after, err := r.used()
	if err != nil {
		return err
	}
	stop()
	stop = func() {}
	into.Peak, into.PeakAnonymous = float64(after.server.Peak), float64(sample())
	into.ServerCPU, into.ClientCPU = (after.server.CPU - before.server.CPU).Seconds(), (after.client - before.client).Seconds()
	r.judge(into, gotBefore, began)
	return nil
}

// judge says what arrived, and how fast.
func (r *run) judge(into *result.Run, gotBefore int64, began time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	into.Missing = r.ledger.wanted() - r.ledger.got()
	into.Twice, into.Corrupt = r.ledger.faults()
	into.Early = r.early
	into.Out = perSecond((r.ledger.got()-gotBefore)/int64(r.workload.Groups), r.last-began)
	into.Call, into.End = times(r.call), times(r.end)
	into.Status = result.OK
	if into.Missing != 0 || into.Corrupt != 0 || into.Early != 0 {
		into.Status = fmt.Sprintf("%s: %d missing, %d damaged, %d early", result.Failed, into.Missing, into.Corrupt, into.Early)
	}
}

// errSilent says that of the warm-up's messages none arrived.
var errSilent = errors.New("none")

// warmUp starts the receivers, sends for a moment, and waits until all has arrived. A backlog has neither: its
// fill is long, and its receivers come later.
func (r *run) warmUp(ctx context.Context, fail context.CancelCauseFunc) (stop func(), err error) {
	w := &r.workload
	if w.kind == backlog {
		return func() {}, nil
	}
	if stop, err = r.receive(ctx, fail); err != nil {
		return nil, err
	}
	count := w.Messages
	if w.Delay > 0 {
		// Only so that connections and caches are there.
		r.delay, count = time.Second, int64(w.Senders*w.Batch)
	}
	if err = r.send(ctx, fail, count, r.warm); err == nil {
		r.drain(ctx)
		err = context.Cause(ctx)
	}
	switch got, wanted := r.ledger.got(), r.ledger.wanted(); {
	case err != nil || got >= wanted:
	case got == 0:
		err = fmt.Errorf("of %d messages of the warm-up, %w", wanted, errSilent)
	default:
		err = fmt.Errorf("warm-up: %d of %d messages arrived", got, wanted)
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

func (r *run) samples(keep bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep, r.call, r.end, r.early = keep, nil, nil, 0
}

// drain waits until every group has received and acknowledged what was sent, or nothing has arrived for a while.
func (r *run) drain(ctx context.Context) {
	got, since := int64(-1), time.Now()
	for ctx.Err() == nil && !r.ledger.settled() {
		if now := r.ledger.got(); now != got {
			got, since = now, time.Now()
		}
		if time.Since(since) > r.patience+r.delay {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// receive starts the receivers of all groups; stop ends them and waits.
func (r *run) receive(ctx context.Context, fail context.CancelCauseFunc) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	stop = func() {
		cancel()
		wg.Wait()
	}
	for group := range r.workload.Groups {
		for i := range r.queue.Receivers(r.workload.Receivers) {
			receiver, err := r.queue.Receiver(ctx, group, i)
			if err != nil {
				stop()
				return nil, fmt.Errorf("receiver: %w", err)
			}
			wg.Go(func() {
				defer receiver.Close()
				if err := r.receiveAll(ctx, receiver, group); err != nil && ctx.Err() == nil {
					fail(fmt.Errorf("receive: %w", err))
				}
			})
		}
	}
	return stop, nil
}

func (r *run) receiveAll(ctx context.Context, receiver peer.Receiver, group int) error {
	var end []time.Duration
	var early int64
	timed := r.workload.Trickle()
	for ctx.Err() == nil {
		end, early = end[:0], 0
		n, err := receiver.Receive(ctx, func(body []byte) {
			number, stamp, ok := read(body)
			r.ledger.add(group, number, ok)
			if !timed || !ok {
				return
			}
			late := r.now() - stamp - r.delay
			if late < -tolerance {
				early++
			}
			end = append(end, late)
		})
		if err != nil {
			return err
		}
		if n > 0 {
			r.arrived(n, end, early)
		}
	}
	return nil
}

func (r *run) arrived(n int, end []time.Duration, early int64) {
	defer r.ledger.done.Add(int64(n))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = r.now()
	r.early += early
	if r.keep {
		r.end = append(r.end, end...)
	}
}

// send runs the senders until so many messages are sent, or the time is over.
func (r *run) send(ctx context.Context, fail context.CancelCauseFunc, count int64, long time.Duration) error {
	// Numbers go on where the warm-up's ended.
	limit := min(r.ledger.next.Load()+count, r.ledger.limit)
	senders := make([]peer.Sender, 0, r.workload.Senders)
	defer func() {
		for _, sender := range senders {
			sender.Close()
		}
	}()
	for range r.workload.Senders {
		sender, err := r.queue.Sender(ctx, r.made)
		if err != nil {
			return fmt.Errorf("sender: %w", err)
		}
		senders = append(senders, sender)
		r.made++
	}
	next := r.closedLoop(limit, long)
	if r.workload.kind == trickle {
		next = r.openLoop(ctx, count, long)
	}
	var wg sync.WaitGroup
	for i, sender := range senders {
		wg.Go(func() {
			if err := r.sendAll(ctx, sender, uint64(i), next); err != nil && ctx.Err() == nil {
				fail(fmt.Errorf("send: %w", err))
			}
		})
	}
	wg.Wait()
	r.sent = r.now()
	return context.Cause(ctx)
}

// sendAll sends what next gives, until it gives nothing more.
func (r *run) sendAll(ctx context.Context, sender peer.Sender, seed uint64, next nextFunc) error {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // filler
	bodies := make([][]byte, r.workload.Batch)
	for i := range bodies {
		bodies[i] = newBody(r.workload.Size, random)
	}
	var calls []time.Duration
	for {
		first, n, due, more := next(len(calls))
		if !more {
			break
		}
		for i, body := range bodies[:n] {
			mark(body, uint64(first)+uint64(i), due)
		}
		started := r.now()
		if err := sender.Send(ctx, bodies[:n], r.delay); err != nil {
			return err
		}
		calls = append(calls, r.now()-started)
		r.ledger.acknowledged.Add(n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keep {
		r.call = append(r.call, calls...)
	}
	return nil
}

// used is what server and client have used so far.
type used struct {
	server process.Use
	client time.Duration
}

func (r *run) used() (u used, err error) {
	if u.server, err = process.Used(r.pids); err != nil {
		return u, err
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		return u, err
	}
	u.client = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	return u, nil
}

// startSampling looks at the server's memory again and again; what it gives ends that and tells the most.
func startSampling(pids []int) func() int64 {
	stop, most := make(chan struct{}), make(chan int64, 1)
	go func() {
		ticker := time.NewTicker(sampleEvery)
		defer ticker.Stop()
		var peak int64
		for {
			if use, err := process.Used(pids); err == nil {
				peak = max(peak, use.Anonymous)
			}
			select {
			case <-stop:
				most <- peak
				return
			case <-ticker.C:
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-most
	}
}

func perSecond(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// times gives percentiles; it sorts samples.
func times(samples []time.Duration) result.Times {
	if len(samples) == 0 {
		return result.Times{}
	}
	slices.Sort(samples)
	at := func(fraction float64) float64 { return samples[int(fraction*float64(len(samples)-1))].Seconds() }
	return result.Times{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}
