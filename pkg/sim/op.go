package sim

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// op is one call of a client.
type op struct {
	number int
	label  string
	what   string
	inst   *instance
	began  time.Time
	cancel context.CancelFunc
	// killed: its process died, so its client never hears the answer.
	killed bool
	done   chan struct{}
	// then judges the answer, in the scheduler.
	then func(o *op)
	said string
}

func (o *op) ended() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// begin starts an op: do runs in a goroutine of its own, then afterwards in the scheduler.
func (w *world) begin(inst *instance, what string, do func(ctx context.Context), then func(o *op)) {
	w.opCount++
	o := &op{number: w.opCount, label: fmt.Sprintf("op%05d", w.opCount), what: what, inst: inst, began: time.Now(), done: make(chan struct{}), then: then}
	ctx := context.WithValue(context.Background(), labelKey{}, o.label)
	ctx, o.cancel = context.WithCancel(ctx)
	ctx = &yielding{ctx, w}
	w.ops = append(w.ops, o)
	w.count(strings.SplitN(what, " ", 2)[0])
	w.say("%s i%d begins: %s", o.label, inst.number, what)
	go func() {
		defer close(o.done)
		w.baton.give(w.ids.name(o.label))
		do(ctx)
	}()
}

func (w *world) finish(o *op) {
	o.cancel()
	if o.killed {
		o.said = "killed"
	}
	o.then(o)
	w.say("%s i%d ends: %s", o.label, o.inst.number, o.said)
}
