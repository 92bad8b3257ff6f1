package fault

import "context"

// work is how one call is carried out.
type work[T any] struct {
	// do carries it out.
	do func(ctx context.Context) (T, error)
	// half carries out half of it (Cut); nil where there is no half.
	half func(ctx context.Context, c *Call) (T, error)
	// hold makes do callable more than once and after the call has returned; nil if it is so
	// anyway.
	hold func() error
}

// run takes one call through its plan.
func run[T any](ctx context.Context, p *Plan, c *Call, w work[T]) (T, error) {
	var none T
	c.halves = w.half != nil
	if err := p.enter(ctx, c); err != nil {
		p.end(c, err, nil, false)
		return none, err
	}
	if w.hold != nil && (c.Fault == Late || c.Fault == Repeat) {
		if err := w.hold(); err != nil {
			p.end(c, err, nil, false)
			return none, err
		}
	}
	do := w.do
	switch c.Fault {
	case Late:
		return none, p.postpone(ctx, c, func(ctx context.Context) error {
			_, err := w.do(ctx)
			return err
		})
	case Cut:
		do = func(ctx context.Context) (T, error) { return w.half(ctx, c) }
	case Repeat:
		// What the first answer was makes no difference: it is lost.
		_, _ = w.do(ctx)
	default:
	}
	v, stored := do(ctx)
	if err := p.leave(c); err != nil {
		p.end(c, err, stored, true)
		if stored == nil {
			discard(v)
		}
		return none, err
	}
	p.end(c, stored, nil, false)
	return v, stored
}

// postpone keeps a Late call until Release.
func (p *Plan) postpone(ctx context.Context, c *Call, do func(context.Context) error) error {
	answer := c.lost()
	p.end(c, answer, nil, false)
	// Its sender may be gone when the request arrives, and with it the sender's context.
	ctx = context.WithoutCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = append(p.late, func() {
		err := do(ctx)
		p.end(c, answer, err, true)
	})
	return answer
}

// discard frees what a dropped answer holds.
func discard(v any) {
	if o, ok := v.(opened); ok {
		_ = o.r.Close() // nobody has read from it
	}
}
