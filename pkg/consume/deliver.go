package consume

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// A payload that cannot be read is tried again after firstBadPause, doubled with each delivery
	// up to lastBadPause: soon enough for what comes back, rare enough for what does not.
	firstBadPause = time.Second
	lastBadPause  = time.Minute
	// reasonUnreadable goes with a message whose payload is gone or damaged.
	reasonUnreadable = "payload_unreadable"
)

// fetched is what became of one run of a hold.
type fetched struct {
	hold *hold
	run  *run
	out  []Delivery
	// bad cannot be read for good.
	bad []meta.OffsetRange
	// withheld could be read, and waits for an earlier message of its key that could not.
	withheld []meta.OffsetRange
	// err says why the run could not be read this time.
	err error
}

// deliver reads what the call has claimed. What it cannot read goes back: with the delivery counted if
// it never will be readable, else without. If ctx has ended everything goes back.
func (s *Service) deliver(ctx context.Context, c *call) ([]Delivery, error) {
	var all []*fetched
	for i := range c.holds {
		for j := range c.holds[i].runs {
			all = append(all, &fetched{hold: &c.holds[i], run: &c.holds[i].runs[j]})
		}
	}
	s.fetchAll(ctx, all, c.byReference)
	if ctx.Err() != nil {
		s.giveBack(ctx, c.holds)
		return nil, canceled(ctx, "claim")
	}
	if c.sub.Keyed() {
		withhold(all)
	}
	var out []Delivery
	var failure error
	for _, f := range all {
		for _, d := range f.out {
			d.Segment, d.Claim, d.Attempt = f.hold.seg.ID, f.hold.claim.ID, f.hold.claim.Attempt
			d.ClaimExpires = f.hold.claim.Parts[0].Expires
			out = append(out, d)
		}
		if f.err != nil && failure == nil {
			failure = f.err
		}
	}
	s.putBack(ctx, c, all)
	if len(out) > 0 {
		failure = nil
	}
	if c.sub.Keyed() {
		sortByOffset(out)
	}
	return out, failure
}

// fetchAll fetches several runs at a time, but those of one batch one after another: the first brings
// the batch into the cache.
func (s *Service) fetchAll(ctx context.Context, all []*fetched, byReference bool) {
	type place struct {
		object string
		pos    int64
	}
	var batches [][]*fetched
	index := make(map[place]int)
	for _, f := range all {
		at := place{f.run.loc.Ref.Object, f.run.loc.Ref.Pos}
		i, ok := index[at]
		if !ok {
			i = len(batches)
			index[at] = i
			batches = append(batches, nil)
		}
		batches[i] = append(batches[i], f)
	}
	if !byReference && len(batches) > 1 {
		refs := make([]*meta.Ref, len(batches))
		for i := range batches {
			refs[i] = batches[i][0].run.loc.Ref
		}
		s.log.Prefetch(ctx, refs)
	}
	signed := &signer{s: s, expires: s.clock().Add(queue.PresignTTL), done: make(map[string]*blob.Request)}
	each(len(batches), func(i int) {
		for _, f := range batches[i] {
			f.out, f.bad, f.err = s.fetch(ctx, f.run, byReference, signed)
		}
	})
}

// each calls f for 0..n-1, several at a time.
func each(n int, f func(int)) {
	if n == 1 {
		f(0)
		return
	}
	var wg sync.WaitGroup
	turn := make(chan struct{}, workers)
	for i := range n {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			f(i)
		})
	}
	wg.Wait()
}

// fetch makes deliveries of a run: one, unless damaged records part it.
func (s *Service) fetch(ctx context.Context, r *run, byReference bool, signed *signer) (out []Delivery, bad []meta.OffsetRange, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, canceled(ctx, "read payload")
	}
	out, bad, err = s.fetchOnce(ctx, r, byReference, signed)
	if queue.Is(err, queue.KindNotFound) {
		// The object is gone: a compactor has moved its messages, or it is lost.
		now, moved, rerr := s.log.Relocate(ctx, r.loc)
		switch {
		case rerr != nil:
			return nil, nil, rerr
		case moved:
			r.loc = now
			out, bad, err = s.fetchOnce(ctx, r, byReference, signed)
		}
	}
	if unreadable(err) {
		s.logger.LogAttrs(ctx, slog.LevelError, "payload cannot be read",
			slog.String("segment", string(r.seg)), slog.Uint64("offset", uint64(r.Lo)),
			slog.Int("count", r.Len()), slog.String("object", r.loc.Ref.Object), slog.Any("error", err))
		return nil, []meta.OffsetRange{r.OffsetRange}, nil
	}
	return out, bad, err
}

func (s *Service) fetchOnce(ctx context.Context, r *run, byReference bool, signed *signer) (out []Delivery, bad []meta.OffsetRange, err error) {
	// What is kept in the metadata store has no object that a URL could point to.
	if !r.loc.Ref.Inline && (byReference || r.bytes > s.maxInline) {
		out, err = s.refer(ctx, r, signed)
	} else {
		out, bad, err = s.read(ctx, r)
	}
	return out, bad, err
}

// signer presigns each object once per call. Safe for concurrent use.
type signer struct {
	s       *Service
	expires time.Time
	mu      sync.Mutex // guards done
	done    map[string]*blob.Request
}

func (g *signer) get(ctx context.Context, object string) (*blob.Request, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if req := g.done[object]; req != nil {
		return req, nil
	}
	req, err := g.s.presign.PresignGet(ctx, object, g.expires)
	if err != nil {
		return nil, err
	}
	g.done[object] = &req
	return &req, nil
}

// refer makes a delivery by reference.
func (s *Service) refer(ctx context.Context, r *run, signed *signer) ([]Delivery, error) {
	d := Delivery{Offset: r.Lo, Count: r.Len(), Ref: r.loc.Ref, First: r.first(), PresignedExpires: queue.MillisOf(signed.expires)}
	var err error
	if r.loc.Ref.Kind == meta.RefBatch {
		var idx *batch.Index
		if idx, d.Index, err = s.log.Index(ctx, r.loc.Ref); err != nil {
			return nil, err
		}
		if int(r.first())+r.Len() > idx.Count() {
			return nil, outside(r)
		}
	}
	d.Presigned, err = signed.get(ctx, r.loc.Ref.Object)
	return []Delivery{d}, err
}

func outside(r *run) error {
	return &queue.Error{Op: "read batch", Subject: r.loc.Ref.Object, Kind: queue.KindCorrupt, Message: "the ref's run is not in its batch"}
}

// read makes deliveries with data. Every body is checked here, so that a damaged one costs itself and
// not its neighbours: whoever decodes the data would stop at it.
func (s *Service) read(ctx context.Context, r *run) (out []Delivery, bad []meta.OffsetRange, err error) {
	data, base, err := s.log.Data(ctx, r.loc.Ref, r.first(), r.count())
	if err != nil {
		if !queue.Is(err, queue.KindCorrupt) || r.Len() == 1 {
			return nil, nil, err
		}
		if _, _, ierr := s.log.Index(ctx, r.loc.Ref); ierr != nil {
			return nil, nil, ierr
		}
		return s.readHalves(ctx, r)
	}
	d := Delivery{Offset: r.Lo, Count: r.Len(), Ref: r.loc.Ref, First: base, Data: data}
	if r.loc.Ref.Kind == meta.RefPayload {
		return []Delivery{d}, nil, nil
	}
	return s.check(ctx, r, d)
}

// readHalves reads a run whose bytes were fetched as a whole and are damaged somewhere.
func (s *Service) readHalves(ctx context.Context, r *run) (out []Delivery, bad []meta.OffsetRange, err error) {
	mid := r.Lo + (r.Hi-r.Lo)/2
	for _, part := range []meta.OffsetRange{{Lo: r.Lo, Hi: mid}, {Lo: mid, Hi: r.Hi}} {
		half := run{seg: r.seg, loc: r.loc, OffsetRange: part}
		o, b, err := s.read(ctx, &half)
		if unreadable(err) {
			b, err = []meta.OffsetRange{part}, nil
		}
		if err != nil {
			return nil, nil, err
		}
		out, bad = append(out, o...), append(bad, b...)
	}
	return out, bad, nil
}

// check reads all bodies of d and parts it at those that are damaged.
func (s *Service) check(ctx context.Context, r *run, d Delivery) (out []Delivery, bad []meta.OffsetRange, err error) {
	rd, err := batch.Open(d.Data)
	if err != nil {
		return nil, nil, err
	}
	if int(d.First)+d.Count > rd.Index().Count() {
		return nil, nil, outside(r)
	}
	var rec batch.Record
	from := 0
	for i := 0; i < d.Count; i++ {
		if i == from { // at the start, and after a damaged record
			if err := rd.Seek(int(d.First)+i, d.Count-i); err != nil {
				return nil, nil, err
			}
		}
		if rd.Next(&rec) {
			continue
		}
		out = d.part(out, from, i)
		bad = appendRange(bad, meta.OffsetRange{Lo: d.Offset + queue.Offset(i), Hi: d.Offset + queue.Offset(i) + 1}) // #nosec G115 -- positive
		s.logger.LogAttrs(ctx, slog.LevelError, "message body is damaged",
			slog.Uint64("offset", uint64(d.Offset)+uint64(i)), slog.String("object", d.Ref.Object), slog.Any("error", rd.Err())) // #nosec G115 -- positive
		from = i + 1
	}
	return d.part(out, from, d.Count), bad, nil
}

// part appends the messages [from, to) of d, if there are any.
func (d *Delivery) part(out []Delivery, from, to int) []Delivery {
	if from >= to {
		return out
	}
	p := *d
	p.Offset += queue.Offset(from) // #nosec G115 -- positive
	p.First += uint32(from)        // #nosec G115 -- positive
	p.Count = to - from
	return append(out, p)
}

// putBack gives back what could not be read, with one update per claim.
func (s *Service) putBack(ctx context.Context, c *call, all []*fetched) {
	var order []*hold
	retries := make(map[*hold][]meta.Retry)
	add := func(h *hold, r meta.Retry) {
		if retries[h] == nil {
			order = append(order, h)
		}
		retries[h] = append(retries[h], r)
	}
	for _, f := range all {
		for _, r := range f.bad {
			attempts := f.hold.claim.Attempt
			wait := min(firstBadPause<<min(attempts-1, 10), lastBadPause)
			add(f.hold, meta.Retry{OffsetRange: r, Attempts: attempts, NotBefore: c.now.Add(wait), Reason: reasonUnreadable})
			c.wakeAt(c.now.Add(wait))
		}
		for _, r := range f.withheld {
			back := f.hold.back
			back.OffsetRange = r
			add(f.hold, back)
		}
		if f.err != nil {
			back := f.hold.back
			back.OffsetRange = f.run.OffsetRange
			add(f.hold, back)
		}
	}
	each(len(order), func(i int) {
		h := order[i]
		s.release(ctx, h, retries[h])
	})
}

// giveBack undoes claims that nobody will hear of: uncounted, and as they were before. It works on
// although ctx has ended.
func (s *Service) giveBack(ctx context.Context, holds []hold) {
	each(len(holds), func(i int) {
		h := &holds[i]
		var retries []meta.Retry
		for _, p := range h.claim.Parts {
			back := h.back
			back.OffsetRange = p.OffsetRange
			retries = append(retries, back)
		}
		s.release(ctx, h, retries)
		s.hub.Signal(h.seg.Topic)
	})
}

// release ends a hold on some messages. If it fails the claim ends by itself, later and counted, so
// the failure is only logged.
func (s *Service) release(ctx context.Context, h *hold, retries []meta.Retry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	op := meta.Settle{Subscription: h.sub, Segment: h.seg.ID, Claim: h.claim.ID, Release: retries}
	for try := 0; ; try++ {
		_, err := s.meta.Apply(ctx, op)
		if _, refused := meta.AsRefused(err); err == nil || refused {
			return
		}
		if !queue.Retryable(err) || try == maxTries || !pause(ctx, try) {
			s.logger.LogAttrs(ctx, slog.LevelWarn, "claimed messages could not be given back",
				slog.String("segment", string(h.seg.ID)), slog.Any("error", err))
			return
		}
	}
}
