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
	all := w.requests()
	if len(all) == 0 {
		return false
	}
	r := all[w.rng.IntN(len(all))]
	if r.stage == served {
		w.say("%s: its answer comes", r)
		w.net.answer(r, r.value, r.err)
		return true
	}
	if time.Since(r.since) > maxTravel {
		w.say("%s: signed too long ago", r)
		w.net.answer(r, nil, refusal(r, queue.KindUnavailable))
		return true
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
		return true
	}
	w.serve(r, k)
	return true
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
		v, err := r.do(false)
		w.say("%s: %s, and again: %s", r, outcome(first), outcome(err))
		w.net.answer(r, v, err)
	case slow:
		w.net.serve(r)
		w.say("%s: %s, answer slow", r, outcome(r.err))
	default:
		v, err := r.do(false)
		w.say("%s: %s", r, outcome(err))
		w.net.answer(r, v, err)
		if k == echoed {
			w.stray(r)
		}
	}
}

// stray keeps a request for a later arrival.
func (w *world) stray(r *request) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	w.net.stray = append(w.net.stray, r)
}
