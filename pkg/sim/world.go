package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

// Options say what a run does; runs of equal options are equal.
type Options struct {
	Seed uint64
	// Steps is the number of decisions before everything is healed and drained; 0 means 3,000.
	Steps int
	// Times are the stores' times.
	Times Times
	// Without turns whole kinds of faults and ops off, by name: a shrunk schedule.
	Without []string
	// Skip lists faults of requests, by their number from 1, that do not happen.
	Skip []int
	// Mutation, if any, is built into the stores.
	Mutation *Mutation
	// Knowing lets findings pass that are known and open, by their rule.
	Knowing []string
	// Record takes down what clients see (Result.Recorded), and lets them do more that is worth judging.
	Record bool
	// Blind lets all findings of the model pass: what is wrong then is for the recorded history to show.
	Blind bool
}

// Finding is a broken promise.
type Finding struct {
	Step int
	// Rule names the promise, Text says how it was broken.
	Rule, Text string
}

// String renders step, rule and text.
func (f *Finding) String() string { return fmt.Sprintf("step %d: %s: %s", f.Step, f.Rule, f.Text) }

// Result is what came of a run.
type Result struct {
	// Finding is the first broken promise; nil if there is none.
	Finding *Finding
	// Times are those that the run had.
	Times   Times
	History []string
	// Counts tell what was done, by kind.
	Counts map[string]int
	// Known counts findings that Options.Knowing let pass.
	Known map[string]int
	// Faults is how many faults of requests there were, those left out included.
	Faults int
	// Took is how long requests without a fault took, by their kind, in a run with published times.
	Took map[string][]time.Duration
	// Recorded is what clients saw; nil unless Options.Record.
	Recorded *history.History
}

// Text is the whole history.
func (r *Result) Text() string { return strings.Join(r.History, "\n") + "\n" }

const (
	defaultSteps = 3000
	// maxSkew is how far an instance's clock is off at most; tolerance is how far those of two are
	// apart.
	maxSkew   = 2 * time.Second
	tolerance = 2 * maxSkew
	// maxTravel bounds how long a request is on its way: a store refuses what was signed longer ago.
	maxTravel = 15 * time.Minute
)

// instance is one process.
type instance struct {
	number int
	skew   time.Duration
	system *assembly.System
	// log is for rolls that no commit asked for, keeper for leases that no use case takes.
	log    *segment.Log
	keeper *lease.Keeper

	mu sync.Mutex // guards what follows
	// thawed is closed while the process runs.
	thawed chan struct{}
	frozen bool

	// dead is guarded by network.mu.
	dead bool
}

func (i *instance) now() queue.Millis { return queue.MillisOf(time.Now().Add(i.skew)) }

func (i *instance) awaitThaw() {
	i.mu.Lock()
	ch := i.thawed
	i.mu.Unlock()
	<-ch
}

// world is one run.
type world struct {
	opts    Options
	rng     *rand.Rand
	ids     *idSource
	baton   *baton
	truth   *memmeta.Store
	records meta.Store // the truth, watched by the model, behind the mutation
	objects blob.Store
	bodies  blob.Store // the objects without mutation
	net     *network
	model   *model
	load    *workload
	rec     *recording
	timing  *timing

	instances []*instance
	born      int
	clients   *instance
	ops       []*op
	opCount   int

	style   style
	step    int
	faults  int
	began   time.Time
	healed  atomic.Bool
	history []string
	result  *Result
}

// style is what kind of run it is: which faults and ops, and how often, drawn from the seed, so that
// runs differ more than their steps do.
type style struct {
	// faults are the weights of the faults of a request.
	faults [faultKinds]int
	// busy is how many ops are under way at most.
	busy int
	// hasty is how often, in percent, a request is dealt with rather than time let pass.
	hasty int
	// process is how often, in 10,000, something happens to a process.
	process int
	// far is how often, in 1,000, time makes a long leap.
	far int
	// strays is how often, in 100, a stray request arrives.
	strays int
	skew   bool
	// aged: some leaps of time are as long as what the compactor waits for.
	aged bool
	// narrow: all producers write to one segment, most ops are theirs, and many requests come late.
	narrow bool
}

func (w *world) off(name string) bool { return slices.Contains(w.opts.Without, name) }

func (w *world) drawStyle() {
	s := style{busy: 2 + w.rng.IntN(10), hasty: 60 + w.rng.IntN(38), process: w.rng.IntN(60), far: w.rng.IntN(8), strays: 1 + w.rng.IntN(10), skew: w.rng.IntN(3) > 0}
	level := []int{0, 1, 3, 10}[w.rng.IntN(4)]
	for k := range s.faults {
		// Each kind is absent from half of the runs.
		if n := w.rng.IntN(2 * (level + 1)); k != int(none) && n <= level && !w.off(faultNames[k]) {
			s.faults[k] = n
		}
	}
	s.faults[none] = 100
	if w.off("process") {
		s.process = 0
	}
	s.skew = s.skew && !w.off("skew")
	s.aged = w.rng.IntN(2) == 0 && !w.off("compact")
	if s.narrow = w.rng.IntN(5) == 0; s.narrow {
		for _, k := range []faultKind{late, echoed} {
			if !w.off(faultNames[k]) {
				s.faults[k] = 4 + w.rng.IntN(8)
			}
		}
	}
	w.style = s
}

// Run makes one run. It must be called within a bubble of testing/synctest.
func Run(opts Options) *Result {
	if opts.Steps == 0 {
		opts.Steps = defaultSteps
	}
	w := &world{
		opts: opts, rng: rand.New(rand.NewPCG(opts.Seed, 1)), // #nosec G404 -- must be repeatable, not secret
		baton: &baton{}, began: time.Now(), timing: newTiming(&opts),
		result: &Result{Counts: make(map[string]int), Known: make(map[string]int), Took: make(map[string][]time.Duration)},
	}
	w.result.Times = w.timing.kind()
	w.say("seed %d, %s", opts.Seed, w.timing.text)
	w.ids = newIDSource(opts.Seed, w.baton)
	w.ids.name(scheduler)
	w.net = &network{world: w, counts: make(map[string]int)}
	w.model = newModel(w)
	w.truth = memmeta.New(w.model)
	bodies := memblob.New(w.model, time.Now, memblob.Options{IDs: w.ids.ids()})
	w.bodies, w.objects = bodies, &watchedObjects{bodies, w.model}
	w.records = &watched{Store: w.truth, model: w.model}
	if m := opts.Mutation; m != nil {
		if m.Records != nil {
			w.records = m.Records(w.records, rand.New(rand.NewPCG(opts.Seed, 2))) // #nosec G404 -- repeatable
		}
		if m.Objects != nil {
			w.objects = m.Objects(w.objects, rand.New(rand.NewPCG(opts.Seed, 2))) // #nosec G404 -- repeatable
		}
	}
	w.drawStyle()
	w.rec = newRecording(w)
	w.clients = w.newInstance()
	for range 1 + w.rng.IntN(3) {
		w.instances = append(w.instances, w.newInstance())
	}
	w.load = newWorkload(w)
	w.run()
	w.close()
	w.result.History, w.result.Faults = w.history, w.faults
	if w.rec.on() {
		w.result.Recorded = w.rec.rec.History()
	}
	if w.ids.strays > 0 {
		w.result.Counts["random draws of nobody"] = w.ids.strays
	}
	return w.result
}

func (w *world) newInstance() *instance {
	i := &instance{number: w.born, thawed: make(chan struct{})}
	close(i.thawed)
	w.born++
	if w.style.skew && i.number > 0 {
		i.skew = (time.Duration(w.rng.Int64N(int64(tolerance))) - maxSkew).Round(time.Millisecond)
	}
	skew := i.skew
	if m := w.opts.Mutation; m != nil && i.number > 0 {
		skew += m.ClockAhead
	}
	i.system = assembly.New(assembly.Deps{
		Meta: &metaNet{w.net, i}, Blob: &blobNet{w.net, i}, Presigner: &blobNet{w.net, i},
		IDs: w.ids.ids(), Clock: w.clock(skew),
	})
	i.system.Compact = w.compactor(i, w.clock(skew))
	return i
}

// run takes the steps, then heals and drains.
func (w *world) run() {
	for w.step = 1; w.step <= w.opts.Steps; w.step++ {
		w.settle()
		if w.result.Finding != nil {
			return
		}
		w.move()
		if w.step%500 == 0 {
			w.model.audit()
		}
	}
	w.settle()
	if w.result.Finding == nil {
		w.drain()
	}
	if w.result.Finding == nil {
		w.model.audit()
	}
}

// settle waits until nothing runs, and hears of the ops that ended.
func (w *world) settle() {
	for synctest.Wait(); w.baton.next(); {
		synctest.Wait()
	}
	// In order of the ops' numbers, whichever ended first.
	left := w.ops[:0]
	var ended []*op
	for _, o := range w.ops {
		if o.ended() {
			ended = append(ended, o)
			continue
		}
		left = append(left, o)
	}
	w.ops = left
	for _, o := range ended {
		w.finish(o)
	}
}

func (w *world) say(format string, args ...any) {
	at := time.Since(w.began).Round(time.Millisecond)
	w.history = append(w.history, fmt.Sprintf("%5d %10s  ", w.step, at)+fmt.Sprintf(format, args...))
}

func (w *world) find(rule, format string, args ...any) {
	f := &Finding{Step: w.step, Rule: rule, Text: fmt.Sprintf(format, args...)}
	if w.opts.Blind || slices.Contains(w.opts.Knowing, rule) {
		w.result.Known[rule]++
		w.say("known: %s: %s", rule, f.Text)
		return
	}
	w.say("FINDING: %s: %s", rule, f.Text)
	if w.result.Finding == nil {
		w.result.Finding = f
	}
}

func (w *world) count(what string) { w.result.Counts[what]++ }

// move makes one decision.
func (w *world) move() {
	switch {
	case w.rng.IntN(10_000) < w.style.process:
		w.strike()
	case w.rng.IntN(100) < w.style.strays && w.arriveStray():
	case len(w.ops) < w.style.busy && (len(w.ops) == 0 || w.rng.IntN(4) == 0):
		w.load.begin()
	case w.rng.IntN(100) < w.style.hasty && w.serveOne():
	default:
		w.pass()
	}
}

// pass lets time pass: mostly a moment, now and then much.
func (w *world) pass() {
	d := time.Duration(1+w.rng.IntN(20)) * time.Millisecond
	switch n := w.rng.IntN(1000); {
	case w.style.aged && n >= 990:
		d = time.Duration(10+w.rng.IntN(60)) * time.Minute
		w.count("very long leaps of time")
	case n < w.style.far:
		d = time.Duration(5+w.rng.IntN(240)) * time.Second
		w.count("long leaps of time")
	case n < 60:
		d = time.Duration(w.rng.IntN(3000)) * time.Millisecond
	}
	if w.timing.published() {
		w.carryOn(d)
		return
	}
	time.Sleep(d)
}

// requests are those that the scheduler may deal with, in an order that does not depend on who came
// first.
func (w *world) requests() []*request {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	var out []*request
	for _, r := range w.net.parked {
		if !r.inst.frozen || r.stage == sent {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, (*request).less)
	return out
}

func (w *world) arriveStray() bool {
	w.net.mu.Lock()
	if len(w.net.stray) == 0 {
		w.net.mu.Unlock()
		return false
	}
	slices.SortFunc(w.net.stray, (*request).less)
	i := w.rng.IntN(len(w.net.stray))
	r := w.net.stray[i]
	w.net.stray = slices.Delete(w.net.stray, i, i+1)
	w.net.mu.Unlock()
	if w.rng.IntN(8) == 0 || time.Since(r.since) > maxTravel {
		w.say("%s is lost on its way", r)
		return true
	}
	_, err := r.do(true)
	w.count("stray requests")
	w.say("%s arrives late, sent %s ago: %s", r, time.Since(r.since).Round(time.Millisecond), outcome(err))
	return true
}

func outcome(err error) string {
	if err == nil {
		return "done"
	}
	if r, ok := meta.AsRefused(err); ok {
		return "refused: " + r.Reason.String()
	}
	return queue.KindOf(err).String()
}

// strike lets something happen to a process.
func (w *world) strike() {
	i := w.instances[w.rng.IntN(len(w.instances))]
	switch {
	case i.frozen:
		w.thaw(i)
	case w.rng.IntN(2) == 0 && !w.off("freeze"):
		i.mu.Lock()
		i.frozen, i.thawed = true, make(chan struct{})
		i.mu.Unlock()
		w.count("freezes")
		w.say("i%d freezes", i.number)
	case !w.off("kill"):
		w.kill(i)
		next := w.newInstance()
		w.instances[slices.Index(w.instances, i)] = next
		w.say("i%d starts, clock %s off", next.number, next.skew)
	}
}

func (w *world) thaw(i *instance) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.frozen {
		i.frozen = false
		close(i.thawed)
		w.say("i%d goes on", i.number)
	}
}

// kill ends a process. What it has sent may still arrive.
func (w *world) kill(i *instance) {
	w.count("kills")
	w.say("i%d dies", i.number)
	w.net.mu.Lock()
	i.dead = true
	parked := slices.Clone(w.net.parked)
	w.net.mu.Unlock()
	slices.SortFunc(parked, (*request).less)
	for _, o := range w.ops {
		if o.inst == i {
			o.killed = true
		}
	}
	for _, r := range parked {
		if r.inst != i {
			continue
		}
		w.net.answer(r, nil, refusal(r, queue.KindCanceled))
		if r.write && r.stage == sent && w.rng.IntN(2) == 0 {
			w.net.mu.Lock()
			w.net.stray = append(w.net.stray, r)
			w.net.mu.Unlock()
		}
	}
	w.thaw(i)
	for _, o := range w.ops {
		if o.inst == i {
			o.cancel()
		}
	}
	i.system.Hub.Close()
}

// close ends every goroutine of the run.
func (w *world) close() {
	w.net.mu.Lock()
	w.net.closed = true
	parked := slices.Clone(w.net.parked)
	w.net.mu.Unlock()
	w.baton.end()
	for _, r := range parked {
		w.net.answer(r, nil, refusal(r, queue.KindCanceled))
	}
	for _, i := range w.instances {
		i.mu.Lock()
		if i.frozen {
			i.frozen = false
			close(i.thawed)
		}
		i.mu.Unlock()
		i.system.Hub.Close()
	}
	for _, o := range w.ops {
		o.cancel()
	}
	for range 100 {
		synctest.Wait()
		w.ops = slices.DeleteFunc(w.ops, (*op).ended)
		time.Sleep(time.Second)
	}
}
