package fault

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// defaultMaxPause bounds a random delay where Options do not say.
	defaultMaxPause = 10 * time.Millisecond
	// maxLog bounds the calls that a plan remembers; a soak must not fill the memory.
	maxLog = 10_000
)

// Options are what a plan may be told besides its faults; the zero value is fine.
type Options struct {
	// Sleep waits for d, or until ctx is done and then returns its error. Nil waits by the real
	// clock (within a synctest bubble, by the bubble's).
	Sleep func(ctx context.Context, d time.Duration) error
	// MaxPause bounds a random Delay, which is drawn evenly from 0 to it; 0 stands for 10 ms.
	MaxPause time.Duration
}

// Plan decides what happens to the calls of one process's stores, and remembers them.
type Plan struct {
	sleep func(ctx context.Context, d time.Duration) error

	mu     sync.Mutex // guards all below
	rules  []*armed
	chance *chance
	steps  int
	log    []*Call
	// dead counts the calls made after the crash.
	dead    int
	crashed bool
	healed  bool
	frozen  int
	// release is closed, and made anew, by Release and Crash; changed whenever frozen changes.
	release chan struct{}
	changed chan struct{}
	late    []func()
}

// Script makes a plan of rules. Of those that match a call and are due, the first decides; all count
// it. A plan without rules injects nothing and only keeps its log.
func Script(opts Options, rules ...Rule) *Plan {
	p := &Plan{sleep: opts.Sleep, release: make(chan struct{}), changed: make(chan struct{})}
	if p.sleep == nil {
		p.sleep = sleep
	}
	for _, r := range rules {
		p.rules = append(p.rules, &armed{Rule: r})
	}
	return p
}

// Random makes a plan that draws each call's fault from seed. It panics if odds are not
// probabilities. Rules that are armed later go before the odds.
func Random(seed uint64, odds Odds, opts Options) *Plan {
	odds.valid()
	if opts.MaxPause == 0 {
		opts.MaxPause = defaultMaxPause
	}
	p := Script(opts)
	p.chance = &chance{
		seed: seed, odds: odds, most: opts.MaxPause,
		rng: rand.New(rand.NewPCG(seed, 0)), // #nosec G404 -- must be repeatable, not secret
	}
	return p
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Arm adds a rule, which counts from now.
func (p *Plan) Arm(r Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &armed{Rule: r})
}

// Crash ends the process: calls that wait are not carried out, calls under way do not get their
// answer, and every later call fails with Canceled. What is Late is still on its way.
func (p *Plan) Crash() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crash()
}

func (p *Plan) crash() {
	if p.healed {
		return
	}
	p.crashed = true
	p.wake()
}

// wake lets frozen calls go on.
func (p *Plan) wake() {
	close(p.release)
	p.release = make(chan struct{})
}

// Crashed reports whether the process has died.
func (p *Plan) Crashed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashed
}

// Steps is the number of calls so far.
func (p *Plan) Steps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.steps
}

// Heal ends all faults for good, a crash included: from now on calls are carried out as they are,
// without being counted as steps. It lets a scenario go on with the same wrapped stores, as the next
// process would with new ones. Frozen calls go on, hung ones
// end with Unavailable; what is Late stays on its way.
func (p *Plan) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed, p.crashed = true, false
	p.wake()
}

// Release lets frozen calls go on and delivers what is Late, in the order in which it was sent; when
// it returns the late calls have been carried out. Calls frozen from now on wait for the next Release.
func (p *Plan) Release() {
	p.mu.Lock()
	late := p.late
	p.late = nil
	p.wake()
	p.mu.Unlock()
	for _, deliver := range late {
		deliver()
	}
}

// AwaitFrozen waits until at least n calls are frozen at once; the error is the context's.
func (p *Plan) AwaitFrozen(ctx context.Context, n int) error {
	for {
		p.mu.Lock()
		frozen, changed := p.frozen, p.changed
		p.mu.Unlock()
		if frozen >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// enter numbers a call, decides its fault, and does what comes before carrying it out. An error is
// the call's answer.
func (p *Plan) enter(ctx context.Context, c *Call) error {
	p.mu.Lock()
	if p.healed {
		p.mu.Unlock()
		return nil
	}
	if p.crashed {
		p.dead++
		p.mu.Unlock()
		return c.fail(queue.KindCanceled, nil)
	}
	p.steps++
	c.Step = p.steps
	pause := p.decide(c)
	p.remember(c)
	release := p.release
	p.mu.Unlock()
	return p.before(ctx, c, pause, release)
}

// decide finds the fault of c. Every rule counts the call, whichever of them fires, and the source of
// randomness moves on for each call, so that arming a rule does not shift what follows.
func (p *Plan) decide(c *Call) (pause time.Duration) {
	for _, r := range p.rules {
		if r.fires(c) && c.Fault == None {
			c.Fault, pause = r.Fault, r.Pause
		}
	}
	if p.chance != nil {
		if f, d := p.chance.draw(); c.Fault == None {
			c.Fault, pause = f, d
		}
	}
	if c.Fault == Late && !c.Write || c.Fault == Cut && !c.halves {
		c.Fault = FailBefore
	}
	return pause
}

func (p *Plan) before(ctx context.Context, c *Call, pause time.Duration, release <-chan struct{}) error {
	switch c.Fault {
	case FailBefore:
		return c.fail(queue.KindUnavailable, nil)
	case Throttle:
		return c.fail(queue.KindThrottled, nil)
	case CrashBefore:
		p.Crash()
		return c.fail(queue.KindCanceled, nil)
	case Delay:
		if err := p.sleep(ctx, pause); err != nil {
			return c.fail(queue.KindCanceled, err)
		}
	case Hang:
		return p.hang(ctx, c, release)
	case Freeze:
		return p.freeze(ctx, c, release)
	default:
	}
	// The process may have died while the call waited.
	if p.Crashed() {
		return c.fail(queue.KindCanceled, nil)
	}
	return nil
}

func (p *Plan) hang(ctx context.Context, c *Call, release <-chan struct{}) error {
	for {
		select {
		case <-release:
		case <-ctx.Done():
			return c.fail(queue.KindCanceled, ctx.Err())
		}
		// A Release is not for this call; the ends of the process and of all faults are.
		p.mu.Lock()
		crashed, healed := p.crashed, p.healed
		release = p.release
		p.mu.Unlock()
		switch {
		case crashed:
			return c.fail(queue.KindCanceled, nil)
		case healed:
			return c.fail(queue.KindUnavailable, nil)
		}
	}
}

func (p *Plan) freeze(ctx context.Context, c *Call, release <-chan struct{}) error {
	p.countFrozen(1)
	defer p.countFrozen(-1)
	select {
	case <-release:
	case <-ctx.Done():
		return c.fail(queue.KindCanceled, ctx.Err())
	}
	if p.Crashed() {
		return c.fail(queue.KindCanceled, nil)
	}
	return nil
}

func (p *Plan) countFrozen(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen += n
	close(p.changed)
	p.changed = make(chan struct{})
}

// leave does what comes after a call was carried out; an error replaces its answer.
func (p *Plan) leave(c *Call) error {
	if c.Fault == CrashAfter {
		p.Crash()
	}
	if p.Crashed() {
		return c.fail(queue.KindCanceled, nil)
	}
	if c.Fault == FailAfter {
		return c.lost()
	}
	return nil
}
