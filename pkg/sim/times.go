package sim

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/latency"
)

// Times says what the stores' times follow from.
type Times string

const (
	// TimesBySeed leaves it to the seed: one in publishedOneIn runs has published times.
	TimesBySeed Times = ""
	// TimesCoarse has a request dealt with when the scheduler picks it, however long others wait. It brings about
	// orders that are rare with the times of real stores, and so finds most faults sooner.
	TimesCoarse Times = "coarse"
	// TimesPublished has a request take what pkg/latency draws for its kind, tails included.
	TimesPublished Times = "published"
)

const (
	publishedOneIn = 3
	// grain is how long time passes at most while a request is under way before those who sleep get their turn.
	grain = 20 * time.Millisecond
	// slowest is how much later a slow answer comes at most.
	slowest = 10 * time.Second
)

// timing is where a run's stores have their times from.
type timing struct {
	seed uint64
	// text names the kind of times, and the stores whose times they are.
	text string
	// curves are nil in a run with coarse times.
	curves *latency.Curves
}

// newTiming decides by the seed itself: runs with coarse times draw nothing for it, and stay what they were
// before there were others.
func newTiming(opts *Options) *timing {
	t := &timing{seed: opts.Seed, text: "coarse times"}
	seed := strconv.FormatUint(opts.Seed, 10)
	if opts.Times == TimesCoarse || opts.Times == TimesBySeed && hash(seed, "times")%publishedOneIn > 0 {
		return t
	}
	buckets := []latency.BucketFigures{latency.S3Standard(), latency.S3StandardFast(), latency.S3Express()}
	bucket := &buckets[hash(seed, "bucket")%uint64(len(buckets))]
	table := latency.DynamoDB()
	t.curves = latency.NewCurves(&table, bucket)
	t.text = "published times: " + table.Read.Service + ", " + bucket.Get.Service
	return t
}

func (t *timing) kind() Times {
	if t.published() {
		return TimesPublished
	}
	return TimesCoarse
}

func (t *timing) published() bool { return t.curves != nil }

// send draws when a request arrives and when its answer comes. It follows from the request alone: those of one op
// may be sent in any order. What a body's bytes take is left out: a run's objects are of a few KiB.
func (t *timing) send(r *request) {
	if !t.published() {
		return
	}
	rng := rand.New(rand.NewPCG(t.seed, hash(r.label, r.name, r.key, r.what, strconv.Itoa(r.nth)))) // #nosec G404 -- repeatable
	took := time.Duration(0)
	for _, k := range r.kinds {
		took += t.curves.Draw(k, rng)
	}
	r.due = r.since.Add(time.Duration(rng.Float64() * float64(took)))
	r.back = r.since.Add(took)
}

// before reports whether a request is due before another.
func (r *request) before(o *request) bool {
	if !r.due.Equal(o.due) {
		return r.due.Before(o.due)
	}
	return r.less(o) < 0
}

// earliest is the request that is due first; nil if there is none.
func (w *world) earliest() *request {
	var first *request
	for _, r := range w.requests() {
		if first == nil || r.before(first) {
			first = r
		}
	}
	return first
}

// serveNext lets time pass until a request is due, and deals with it; false if none is under way.
func (w *world) serveNext() bool {
	for r := w.earliest(); r != nil; r = w.earliest() {
		if w.reach(r) {
			return true
		}
	}
	return false
}

// carryOn lets time pass, and deals with what is due meanwhile, so that a leap makes no request take longer than
// what was drawn for it.
func (w *world) carryOn(d time.Duration) {
	end := time.Now().Add(d)
	for r := w.earliest(); r != nil && !r.due.After(end); r = w.earliest() {
		if w.reach(r) {
			w.settle()
		}
		if w.result.Finding != nil {
			return
		}
	}
	time.Sleep(time.Until(end))
}

// reach lets time pass towards when a request is due, and deals with it once it is.
func (w *world) reach(r *request) bool {
	left := time.Until(r.due)
	if left <= 0 {
		w.handle(r)
		return true
	}
	time.Sleep(min(left, grain))
	w.settle() // another may be due before it now
	return false
}

// took takes down how long a request without a fault took.
func (w *world) took(r *request) {
	if len(r.kinds) == 1 && r.plain && w.timing.published() {
		k := r.kinds[0].String()
		w.result.Took[k] = append(w.result.Took[k], time.Since(r.since))
	}
}
