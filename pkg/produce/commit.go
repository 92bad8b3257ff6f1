package produce

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
)

const (
	// maxParallel bounds the head updates of one call that are under way at once.
	maxParallel = 16
	// maxRoutes bounds how often a call follows changes of the segment map.
	maxRoutes = 5
)

// share is what of a call goes to one segment by one head update.
type share struct {
	segment *meta.Segment
	parts   []part
	// number tells the shares of one segment apart.
	number int
	// carried is the length of keys and headers in the refs.
	carried int
}

// full reports whether one more ref that carries n bytes belongs into another head update.
func (s *share) full(n int) bool {
	return len(s.parts) == queue.MaxCommitRefs || len(s.parts) > 0 && s.carried+n > queue.MaxCommitRefBytes
}

// putObject makes the call's bytes durable: in the blob store, or, for a small call, as a payload
// record. A payload that goes to one segment only waits for that head update (commit) and costs no
// write of its own time, unless that segment is being rolled: then it is put meanwhile.
func (c *call) putObject(ctx context.Context, now, later []part, rolling bool) error {
	own := func(p part) bool { return p.unit.own }
	if !slices.ContainsFunc(now, own) && !slices.ContainsFunc(later, own) {
		return nil
	}
	if len(c.object) > queue.InlinePayloadBytes {
		key, err := c.createObject(ctx)
		if err != nil {
			return err
		}
		c.place(key, false)
		return nil
	}
	id := c.objectName()
	c.payload = &meta.Payload{ID: id, Data: c.object}
	c.place(id, true)
	if len(later) == 0 && len(c.shares(now)) == 1 && !rolling {
		return nil
	}
	put := meta.Put{Record: c.payload, If: meta.Absent(), Version: meta.NewVersion(c.IDs)}
	_, err := c.Meta.Apply(ctx, put)
	if queue.Is(err, queue.KindOutcomeUnknown) {
		// A record under the id is ours, or a first try's with the same bytes.
		_, err = c.Meta.Apply(ctx, put)
	}
	if err != nil && !meta.IsRefused(err, meta.ReasonExists) {
		return err
	}
	c.payload = nil
	return nil
}

// objectName names the call's bytes. Names rise with time, so that the embedded store fills its pages one
// after another. The rest is random; but under an Idempotency-Key it follows from the call and its bytes:
// then tries that put the same bytes append the same refs, and a head knows the request of a first try
// that arrives after the second one. (A producer's heads know its sequence.)
func (c *call) objectName() string {
	rest := ""
	if c.guard != nil && c.guard.producer == "" {
		sum := sha256.Sum256(append(c.nonce[:], c.object...))
		rest = string(queue.EntryIDOf([16]byte(sum[:16])))
	} else {
		rest = c.IDs.ID()
	}
	return meta.PayloadID(c.created, rest)
}

// createObject puts the call's bytes in the blob store.
func (c *call) createObject(ctx context.Context) (string, error) {
	if c.guard == nil || c.guard.producer != "" {
		return c.Blob.Create(ctx, blob.PrefixBatches, c.object)
	}
	key := blob.PrefixBatches + c.objectName()
	terms := blob.Terms{Size: int64(len(c.object)), CRC32C: blob.CRC32C(c.object), HasCRC32C: true}
	_, err := c.Blob.Put(ctx, key, bytes.NewReader(c.object), terms)
	if queue.Is(err, queue.KindExists) {
		err = nil // a first try put the same bytes
	}
	return key, err
}

func (c *call) place(object string, inline bool) {
	for _, u := range c.units {
		if u.own {
			u.ref.Object, u.ref.Inline = object, inline
		}
	}
}

// shares routes parts to the segments that own their slots now, in order of segment range.
func (c *call) shares(parts []part) []share {
	bySegment := make(map[queue.SegmentID]*share)
	var order []*share
	add := func(seg *meta.Segment, p part) {
		sh := bySegment[seg.ID]
		carried := len(p.unit.ref.Key) + len(p.unit.ref.Headers)
		if sh == nil || sh.full(carried) {
			next := &share{segment: seg}
			if sh != nil {
				next.number = sh.number + 1
			}
			sh = next
			bySegment[seg.ID] = sh
			order = append(order, sh)
		}
		sh.parts = append(sh.parts, p)
		sh.carried += carried
	}
	for _, p := range parts {
		recs := p.records()
		for i := 0; i < len(recs); {
			seg := c.topic.Route(recs[i].slot)
			j := i + 1
			for j < len(recs) && seg.Range.Contains(recs[j].slot) {
				j++
			}
			add(seg, part{p.unit, p.first + i, j - i})
			i = j
		}
	}
	slices.SortStableFunc(order, func(a, b *share) int { return cmp.Compare(a.segment.Range.Lo, b.segment.Range.Lo) })
	out := make([]share, len(order))
	for i, sh := range order {
		out[i] = *sh
	}
	return out
}

// commit appends parts to their segments, several at once. What meets a changed segment map is routed
// anew. Failures go into the results of the messages that they concern.
func (c *call) commit(ctx context.Context, parts []part) {
	for range maxRoutes {
		moved := c.joined(c.commitShares(ctx, c.shares(c.withoutEarlier(ctx, parts))))
		if len(moved) == 0 {
			return
		}
		if c.guard != nil && c.failed(parts) {
			// The next try will send what failed and what moved to the same segment, in one append, and that
			// must find all of an earlier one or nothing.
			c.refuse(moved, &queue.Error{
				Op: "produce", Subject: c.topic.Name, Kind: queue.KindUnavailable,
				Message: "another part of the call failed while its segments were changed",
			})
			return
		}
		if err := c.reroute(ctx); err != nil {
			c.refuse(moved, err)
			return
		}
		parts = moved
	}
	c.refuse(parts, &queue.Error{Op: "produce", Subject: c.topic.Name, Kind: queue.KindThrottled, Message: "the topic's segments change faster than the call can follow"})
}

// reroute reads the segment map anew.
func (c *call) reroute(ctx context.Context) error {
	m, err := c.Topics.Reload(ctx, c.topic.Name)
	if err == nil && m.ID() != c.topic.ID() {
		err = &queue.Error{Op: "produce", Subject: c.topic.Name, Kind: queue.KindNotFound, Code: queue.CodeTopicNotFound, Message: "the topic was replaced"}
	}
	if err == nil && m.Topic.State != meta.TopicOpen {
		err = &queue.Error{Op: "produce", Subject: c.topic.Name, Kind: queue.KindSealed, Code: queue.CodeTopicSealed}
	}
	if err != nil {
		return err
	}
	c.topic = m
	return nil
}

// joined puts parts in the order of the call and joins neighbours: so the same messages make the same refs in
// the same order, whatever segments they were tried on before.
func (c *call) joined(parts []part) []part {
	if len(parts) < 2 {
		return parts
	}
	place := make(map[*unit]int, len(c.units))
	for i, u := range c.units {
		place[u] = i
	}
	slices.SortFunc(parts, func(a, b part) int {
		return cmp.Or(cmp.Compare(place[a.unit], place[b.unit]), cmp.Compare(a.first, b.first))
	})
	out := parts[:1]
	for _, p := range parts[1:] {
		if last := &out[len(out)-1]; last.unit == p.unit && last.first+last.count == p.first {
			last.count += p.count
			continue
		}
		out = append(out, p)
	}
	return out
}

// failed reports whether any message of parts was refused.
func (c *call) failed(parts []part) bool {
	for _, p := range parts {
		for _, rec := range p.records() {
			if c.results[rec.pos].err != nil {
				return true
			}
		}
	}
	return false
}

// commitShares appends each share and gives back the parts whose segment is no longer open.
func (c *call) commitShares(ctx context.Context, shares []share) (moved []part) {
	if len(shares) == 1 {
		return c.commitShare(ctx, shares[0])
	}
	var mu sync.Mutex // guards moved
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for _, sh := range inOrder(shares) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for _, one := range sh {
				if m := c.commitShare(ctx, one); len(m) > 0 {
					mu.Lock()
					moved = append(moved, m...)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return moved
}

// inOrder groups shares by segment: those of one segment must follow each other, since the messages
// of one key do.
func inOrder(shares []share) [][]share {
	var out [][]share
	for _, sh := range shares {
		if n := len(out); n > 0 && out[n-1][0].segment.ID == sh.segment.ID {
			out[n-1] = append(out[n-1], sh)
			continue
		}
		out = append(out, []share{sh})
	}
	return out
}

func (c *call) commitShare(ctx context.Context, sh share) (moved []part) {
	commit := segment.Commit{
		Segment: sh.segment, At: c.created, Deadline: c.deadline, Payload: c.payload, Again: c.again,
		Refs: make([]meta.Ref, len(sh.parts)), Producer: c.sequence(sh.number),
	}
	want := 0
	for i, p := range sh.parts {
		commit.Refs[i] = p.ref()
		want += p.count
		for _, rec := range p.records() {
			commit.Buckets[sh.segment.Range.LoadBucket(rec.slot)]++
		}
	}
	done, err := c.Log.Append(ctx, commit)
	if done.Head != nil || done.Pressed {
		c.Topics.Observe(ctx, c.topic, done.Head, done.Pressed)
	}
	if err == nil && done.Count == 0 {
		err = c.isVoided()
	}
	if err == nil && done.Count != want {
		err = &queue.Error{
			Op: "produce", Subject: c.topic.Name, Kind: queue.KindConflict, Code: queue.CodeSequenceOutOfOrder,
			Field: "producer.sequence", Message: "the sequence was used for other messages before",
		}
	}
	switch queue.KindOf(err) {
	case queue.KindSealed, queue.KindFenced, queue.KindNotFound:
		if err != nil {
			return sh.parts
		}
	}
	if err != nil {
		c.refuse(sh.parts, err)
		return nil
	}
	off := done.Offset
	for _, p := range sh.parts {
		for _, rec := range p.records() {
			r := &c.results[rec.pos]
			r.id = queue.MessageID{Segment: sh.segment.ID, Offset: off}
			r.committedAt(done.At)
			off++
		}
	}
	return nil
}

// sequence is the producer's for the n-th share of one segment; shares have names of their own, as a
// head remembers one sequence per name. So has what a call appends beside entries of the delayed index:
// these void the names that it has as a whole.
func (c *call) sequence(n int) *meta.Sequence {
	if c.guard == nil || c.guard.producer == "" {
		return nil
	}
	id := c.guard.producer
	if c.delayed {
		id += besideDelayed
	}
	return &meta.Sequence{ID: shareName(id, n), Number: c.guard.sequence}
}

// besideDelayed ends the name of a producer for what it appends beside entries of the delayed index.
const besideDelayed = "/now"

func shareName(id string, n int) string {
	if n > 0 {
		id += "/" + strconv.Itoa(n)
	}
	return id
}

func (c *call) refuse(parts []part, err error) {
	for _, p := range parts {
		for _, rec := range p.records() {
			c.results[rec.pos].err = err
		}
	}
}

func asError(err error, e **queue.Error) bool { return errors.As(err, e) }
