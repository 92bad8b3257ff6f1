package sim

import (
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// faultKind is what happens to one request.
type faultKind uint8

const (
	// none: it is carried out and answered.
	none faultKind = iota
	// refused: nothing happens; Unavailable.
	refused
	// throttled: nothing happens; Throttled.
	throttled
	// lost: it is carried out and its answer lost.
	lost
	// late: its caller is told that its outcome is unknown, and it arrives later, or never.
	late
	// doubled: it is carried out twice, and the second answer is given (the store's client tried
	// again).
	doubled
	// echoed: it is carried out and answered, and arrives a second time later.
	echoed
	// slow: it is carried out now and answered later.
	slow

	faultKinds
)

var faultNames = [faultKinds]string{
	"none", "refused", "throttled", "lost", "late", "doubled", "echoed", "slow",
}

func (w *world) drawFault(r *request) faultKind {
	if w.healed.Load() {
		return none
	}
	total := 0
	for _, n := range w.style.faults {
		total += n
	}
	x := w.rng.IntN(total)
	for k, n := range w.style.faults {
		if x < n {
			return faultKind(k) // #nosec G115 -- below faultKinds
		}
		x -= n
	}
	return none
}

// serveOne deals with one parked request; false if there is none.
func (w *world) serveOne() bool {
	if w.timing.published() {
		return w.serveNext()
	}
	all := w.requests()
	if len(all) == 0 {
		return false
	}
	w.handle(all[w.rng.IntN(len(all))])
	return true
}

// handle lets a request arrive, or its answer come.
func (w *world) handle(r *request) {
	if r.stage == served {
		w.say("%s: its answer comes", r)
		w.took(r)
		w.net.answer(r, r.value, r.err)
		if r.again {
			w.stray(r)
		}
		return
	}
	if time.Since(r.since) > maxTravel {
		w.say("%s: signed too long ago", r)
		w.net.answer(r, nil, refusal(r, queue.KindUnavailable))
		return
	}
	k := w.drawFault(r)
	if !r.write && (k == late || k == doubled || k == echoed) {
		k = refused
	}
	if k == echoed && r.once {
		k = none // the contract of pkg/meta
	}
	if k != none {
		w.faults++
		if slices.Contains(w.opts.Skip, w.faults) {
			k = none
		}
	}
	if k != none {
		w.count("fault " + faultNames[k])
	}
	if r.inst.frozen {
		// It was on its way when the process froze.
		w.net.serve(r)
		w.say("%s: %s, answer to a frozen process", r, outcome(r.err))
		return
	}
	w.serve(r, k)
}

func (w *world) serve(r *request, k faultKind) {
	switch k {
	case refused:
		w.say("%s: fails before", r)
		w.net.answer(r, nil, refusal(r, queue.KindUnavailable))
	case throttled:
		w.say("%s: throttled", r)
		w.net.answer(r, nil, refusal(r, queue.KindThrottled))
	case late:
		w.say("%s: not there yet, outcome unknown", r)
		w.net.answer(r, nil, lostAnswer(r))
		w.stray(r)
	case lost:
		_, err := r.do(false)
		w.say("%s: %s, answer lost", r, outcome(err))
		w.net.answer(r, nil, lostAnswer(r))
	case doubled:
		_, first := r.do(false)
		w.net.serve(r)
		w.say("%s: %s, and again: %s", r, outcome(first), outcome(r.err))
		w.goBack(r)
	case slow:
		w.net.serve(r)
		w.say("%s: %s, answer slow", r, outcome(r.err))
		if w.timing.published() {
			r.due = r.due.Add(time.Duration(w.rng.Int64N(int64(slowest))))
		}
	default:
		w.net.serve(r)
		w.say("%s: %s", r, outcome(r.err))
		// Not a stray before its answer: who gives it up meanwhile would take it back.
		r.again, r.plain = k == echoed, k == none
		w.goBack(r)
	}
}

// goBack sends the answer of a request that was carried out: at once, unless that takes time.
func (w *world) goBack(r *request) {
	if w.timing.published() {
		return
	}
	w.net.answer(r, r.value, r.err)
	if r.again {
		w.stray(r)
	}
}

// stray keeps a request for a later arrival.
func (w *world) stray(r *request) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.stray = append(w.net.stray, r)
}
