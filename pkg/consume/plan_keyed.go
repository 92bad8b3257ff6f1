package consume

import (
	"cmp"
	"context"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

const (
	// maxPassed bounds the messages that one plan passes over: as far behind the first message that is
	// not done one of another key may be, and still be found.
	maxPassed = 10_000
	// maxKeyReads bounds the refs that one plan reads for their keys. The next one knows them.
	maxKeyReads = 1024
)

// walk works out a plan that keeps each key's messages in order. It goes through what is not done, by
// offset. A message is taken only if none of its key is in a live claim, and none before it was left
// behind: so what is taken of a key is always its first messages that are not done, and two plans that
// take of one key use up the same thing, of which only one can be carried out. It changes its plan only
// when it is committed.
type walk struct {
	p       *plan
	blocked map[keyHash]struct{}

	// messages, room and bytes are what may still be taken, share how much of messages may have been
	// delivered before; entries is what the cursor will hold.
	messages, room, share, entries int
	bytes                          int64
	isolated, firsts               bool

	// passed counts what was left behind, reads what was read for it; wave is how many refs to read at
	// one go. held says that something waited for its key, shared that it waited for share.
	passed, reads, wave int
	held, shared        bool
	// capped says that a limit of the cursor kept a message back, tired that maxKeyReads did.
	capped, tired bool
	// end says that nothing more will be taken.
	end bool

	// sources are what messages were taken of, in the order of their first.
	sources []*source
}

// source is one thing to take messages of: what is due, or what was never claimed.
type source struct {
	d *due // nil for what was never claimed
	// piece is how many messages may yet be taken of it, for poison isolation.
	piece int
	runs  []run
	gone  []meta.OffsetRange
	count int
}

func (o *source) used() bool { return len(o.runs)+len(o.gone) > 0 }

// stretch is a range of offsets of one source; without one it is not due and only blocks keys.
type stretch struct {
	meta.OffsetRange
	from *source
}

// makeKeyed fills the plan for a subscription that keeps each key's messages in order.
func (p *plan) makeKeyed(ctx context.Context) error {
	list, fresh, err := p.begin(ctx)
	if err != nil {
		return err
	}
	if !fresh && len(list) == 0 {
		return nil
	}
	share := p.messages
	if fresh {
		share = p.share()
	}
	w, err := p.walk(ctx, list, fresh, share)
	if err == nil && len(w.sources) == 0 && w.shared {
		w, err = p.walk(ctx, list, fresh, p.messages) // what was to have the other half has to wait
	}
	if err == nil {
		w.commit()
	}
	return err
}

func (p *plan) walk(ctx context.Context, list []due, fresh bool, share int) (*walk, error) {
	w := &walk{
		p: p, blocked: make(map[keyHash]struct{}), messages: p.messages, room: p.room, share: share,
		entries: p.cur.Entries(), bytes: p.cut.bytes, isolated: p.isolated, firsts: p.firsts, wave: 1,
	}
	live, rest := w.stretches(list)
	for _, r := range live {
		if err := w.block(ctx, r); err != nil {
			return nil, err
		}
	}
	for _, s := range rest {
		if w.end {
			return w, nil
		}
		if err := w.through(ctx, s); err != nil {
			return nil, err
		}
	}
	if !fresh || w.end {
		return w, nil
	}
	unclaimed := stretch{meta.OffsetRange{Lo: p.cur.Next, Hi: queue.MaxOffset}, &source{piece: w.messages}}
	if err := w.through(ctx, unclaimed); err != nil {
		return nil, err
	}
	return w, nil
}

// stretches sorts what of the cursor is not done: what is in flight, and by offset all else below Next.
func (w *walk) stretches(list []due) (live []meta.OffsetRange, rest []stretch) {
	now := w.p.c.now
	for _, cl := range w.p.cur.Claims {
		for _, part := range cl.Parts {
			if part.Expires > now {
				live = append(live, part.OffsetRange)
			}
		}
	}
	for i := range w.p.cur.Retries {
		if r := &w.p.cur.Retries[i]; r.NotBefore > now {
			rest = append(rest, stretch{OffsetRange: r.OffsetRange})
		}
	}
	for i := range list {
		d := &list[i]
		var o *source
		if !spent(w.p.c.sub, d.attempts) {
			o = &source{d: d, piece: d.piece(w.p.c.sub)}
		}
		for _, r := range d.ranges {
			rest = append(rest, stretch{r, o})
		}
	}
	slices.SortFunc(live, func(a, b meta.OffsetRange) int { return cmp.Compare(a.Lo, b.Lo) })
	slices.SortFunc(rest, func(a, b stretch) int { return cmp.Compare(a.Lo, b.Lo) })
	return live, rest
}

// block blocks the keys of messages in flight. How many these are has a limit of its own.
func (w *walk) block(ctx context.Context, r meta.OffsetRange) error {
	v := w.p.view
	for r.Lo < r.Hi {
		known := v.s.keys.get(nil, v.id, r)
		w.blockAll(known)
		if r.Lo += queue.Offset(len(known)); r.Lo == r.Hi { // #nosec G115 -- a length
			return nil
		}
		loc, ok, gone, err := v.locate(ctx, r.Lo)
		switch {
		case gone:
			r.Lo = min(r.Hi, v.start)
			continue
		case err != nil || !ok:
			return err
		}
		one := meta.OffsetRange{Lo: r.Lo, Hi: min(r.Hi, loc.End())}
		keys, _, err := v.keysOf(ctx, loc, one, r.Hi, maxWave)
		if err != nil {
			return err
		}
		w.blockAll(keys)
		r.Lo = one.Hi
	}
	return nil
}

func (w *walk) blockAll(keys []keyHash) {
	for _, k := range keys {
		if k != noKey {
			w.blocked[k] = struct{}{}
		}
	}
}

// through goes through a stretch and takes what it may. Past the end of the segment there is nothing.
func (w *walk) through(ctx context.Context, s stretch) error {
	o := s.from
	if o != nil && o.d != nil && o.count == 0 && w.kept(o.d) {
		o = nil
	}
	v, r := w.p.view, s.OffsetRange
	for r.Lo < r.Hi && !w.end {
		loc, ok, gone, err := v.locate(ctx, r.Lo)
		switch {
		case gone:
			hi := min(r.Hi, v.start)
			w.drop(o, meta.OffsetRange{Lo: r.Lo, Hi: hi})
			r.Lo = hi
			continue
		case err != nil || !ok:
			return err
		}
		one := meta.OffsetRange{Lo: r.Lo, Hi: min(r.Hi, loc.End())}
		if loc.Ref.Expired(w.p.c.now) {
			w.drop(o, one)
		} else if err := w.ref(ctx, o, loc, one, s.Hi); err != nil {
			return err
		}
		r.Lo = one.Hi
	}
	return nil
}

// kept is as plan.kept.
func (w *walk) kept(d *due) bool {
	if d.alone() {
		return w.isolated || w.firsts
	}
	return d.claim != nil && w.isolated
}

// ref goes through the messages r of one ref, in a stretch that ends at end.
func (w *walk) ref(ctx context.Context, o *source, loc segment.Located, r meta.OffsetRange, end queue.Offset) error {
	if w.reads >= maxKeyReads {
		w.end, w.tired = true, true
		return nil
	}
	keys, read, err := w.p.view.keysOf(ctx, loc, r, end, w.ahead(loc))
	if w.reads += read; err != nil {
		return err
	}
	wanted := w.messages
	err = w.each(ctx, o, loc, r, keys)
	if w.messages < wanted {
		w.wave = 1
	} else if read > 0 {
		w.wave = min(2*w.wave, maxWave)
	}
	return err
}

// ahead is how many refs from loc on to read for their keys: those that would fill the answer, or, in
// what has to be passed over, ever more.
func (w *walk) ahead(loc segment.Located) int {
	n, messages, bytes := 0, 0, int64(0)
	for _, next := range w.p.view.following(loc.Offset) {
		if messages >= w.messages || n > 0 && w.p.cut.bounded && bytes+next.Ref.Bytes > w.bytes {
			break
		}
		n, messages, bytes = n+1, messages+int(next.Ref.Count), bytes+next.Ref.Bytes
	}
	return max(n, w.wave)
}

// each decides on the messages r of one ref, one by one.
func (w *walk) each(ctx context.Context, o *source, loc segment.Located, r meta.OffsetRange, keys []keyHash) error {
	now := w.p.c.now
	var recs []record
	exact := loc.Ref.PartlyExpired(now) || w.p.cut.bounded && loc.Ref.Bytes > w.bytes
	if exact {
		var err error
		if recs, err = w.p.view.records(ctx, loc, r); err != nil {
			return err
		}
	}
	whole := loc.Ref.Bytes // charged with the first of the ref, unless exact
	for i, key := range keys {
		one := run{seg: w.p.view.id, loc: loc, OffsetRange: meta.OffsetRange{Lo: r.Lo, Hi: r.Lo + 1}, keys: keys[i : i+1]}
		r.Lo++
		switch {
		case recs != nil:
			one.bytes = recs[i].bytes
			if e := recs[i].expires; e != 0 && e <= now {
				w.drop(o, one.OffsetRange)
				continue
			}
		case exact:
			one.bytes = loc.Ref.Bytes / int64(loc.Ref.Count)
		default:
			one.bytes = whole
		}
		if w.end {
			return nil
		}
		if !w.may(o, key) {
			w.blockAll(keys[i : i+1])
			w.passed++
			w.end = w.passed >= maxPassed
			continue
		}
		if w.p.cut.bounded && one.bytes > w.bytes && (w.p.cut.taken || w.messages < w.p.messages) {
			w.end = true
			return nil
		}
		whole = 0
		w.add(o, one)
	}
	return nil
}

// may reports whether a message may be taken, its size aside.
func (w *walk) may(o *source, key keyHash) bool {
	if _, blocked := w.blocked[key]; blocked {
		w.held = true
		return false
	}
	if o == nil {
		return false
	}
	failed := o.d != nil && o.d.attempts > 0
	room, most := w.room, queue.MaxCursorEntries
	if o.d != nil {
		// As in takeOne: what is due may have entries where fresh messages may not.
		most *= 2
		if o.d.claim != nil && !o.used() {
			room += o.d.count // they count as in flight already
		}
	}
	switch {
	case o.piece <= 0:
	case failed && w.share <= 0:
		w.shared = true
	case room <= 0:
		w.capped = true
	case w.entries >= most:
		// Where a key is waited for, it is what fills the cursor.
		w.capped = w.capped || !w.held
	default:
		return true
	}
	return false
}

// use notes that something of a source is taken.
func (w *walk) use(o *source) {
	if o.used() {
		return
	}
	w.sources = append(w.sources, o)
	if o.d != nil && o.d.claim != nil {
		w.room += o.d.count
	}
}

// drop ends what has expired or was truncated. What is not due will be ended when it is; it waits for
// nothing and nothing waits for it.
func (w *walk) drop(o *source, r meta.OffsetRange) {
	if o == nil {
		return
	}
	w.use(o)
	w.entries++
	o.gone = appendRange(o.gone, r)
}

func (w *walk) add(o *source, one run) {
	w.use(o)
	w.messages--
	w.room--
	w.bytes -= one.bytes
	o.piece--
	o.count++
	w.end = w.end || w.messages <= 0
	if d := o.d; d != nil {
		if d.attempts > 0 {
			w.share--
		}
		w.isolated = w.isolated || d.alone()
		w.firsts = w.firsts || d.claim != nil && !d.alone()
	}
	if n := len(o.runs); n > 0 && o.runs[n-1].loc.Ref == one.loc.Ref && o.runs[n-1].Hi == one.Lo {
		last := &o.runs[n-1]
		last.Hi = one.Hi
		last.bytes += one.bytes
		last.keys = append(last.keys, one.keys...)
		return
	}
	w.entries += 2
	o.runs = append(o.runs, one)
}

// commit fills the plan.
func (w *walk) commit() {
	p := w.p
	for _, o := range w.sources {
		all := meta.OffsetRange{Lo: p.cur.Next}
		used := slices.Clone(o.gone)
		for i := range o.runs {
			used = append(used, o.runs[i].OffsetRange)
		}
		used = union(used)
		back, attempts := meta.Retry{}, uint32(0)
		if o.d != nil {
			o.d.use(&p.take, p.c.now)
			p.take.AddRetries = append(p.take.AddRetries, o.d.rest(without(o.d.ranges, used))...)
			back, attempts = o.d.back(), o.d.attempts
		} else {
			all.Hi = used[len(used)-1].Hi
			p.take.To = all.Hi
			for _, r := range without([]meta.OffsetRange{all}, used) {
				p.take.AddRetries = append(p.take.AddRetries, meta.Retry{OffsetRange: r})
			}
		}
		p.take.Done = append(p.take.Done, o.gone...)
		if o.count > 0 {
			p.hold(o.runs, attempts+1, back)
		}
	}
	p.take.AddRetries = joinRetries(p.take.AddRetries)
	p.messages, p.room, p.isolated, p.firsts = w.messages, w.room, w.isolated, w.firsts
	p.cut.taken = p.cut.taken || p.messages < p.c.messages
	p.cut.bytes, p.cut.tired = w.bytes, w.tired
	p.capped = p.capped || w.capped
}

// without cuts b out of a: both ascending and disjoint.
func without(a, b []meta.OffsetRange) []meta.OffsetRange {
	var out []meta.OffsetRange
	for _, r := range a {
		for len(b) > 0 && b[0].Hi <= r.Lo {
			b = b[1:]
		}
		for _, x := range b {
			if x.Lo >= r.Hi {
				break
			}
			if r.Lo < x.Lo {
				out = append(out, meta.OffsetRange{Lo: r.Lo, Hi: x.Lo})
			}
			r.Lo = min(r.Hi, x.Hi)
		}
		if r.Lo < r.Hi {
			out = append(out, r)
		}
	}
	return out
}

// joinRetries joins neighbours that are alike, so that a key with many messages does not fill the cursor.
// Those that are kept alone stay apart: their length says how many may meet.
func joinRetries(list []meta.Retry) []meta.Retry {
	slices.SortFunc(list, func(a, b meta.Retry) int { return cmp.Compare(a.Lo, b.Lo) })
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && !r.Alone && out[n-1].Hi == r.Lo {
			same := r
			if same.OffsetRange = out[n-1].OffsetRange; same == out[n-1] {
				out[n-1].Hi = r.Hi
				continue
			}
		}
		out = append(out, r)
	}
	return out
}
