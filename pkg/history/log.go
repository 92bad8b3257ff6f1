package history

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// The model of a segment's log: an append puts its messages at the log's end, which is the offset that it answers,
// all or none; a read shows what is there, all of it, and only what may go can be missing; a sealed log takes no more.

const logName = "log"

// record is a message in a log.
type record struct {
	body string
	// mayGo: a read may pass over it. blank: what it is was never seen.
	mayGo, blank bool
}

// logState is a log: a chain of what each append put, so that histories of one beginning share it.
type logState struct {
	prev    *logState
	records []record
	// next is the offset after the last record, sum a hash of all of them.
	next   queue.Offset
	sum    uint64
	sealed bool
}

func (s *logState) String() string {
	if s.sealed {
		return fmt.Sprintf("%d messages, sealed", s.next)
	}
	return fmt.Sprintf("%d messages", s.next)
}

func equalLogs(a, b *logState) bool {
	return a == b || a.next == b.next && a.sum == b.sum && a.sealed == b.sealed
}

func (s *logState) with(records []record) *logState {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %v", s.sum, records) // a hash never fails
	return &logState{prev: s, records: records, next: s.next + queue.Offset(len(records)), sum: h.Sum64()}
}

// logStep is an append, a seal or a read of one segment.
type logStep struct {
	Span
	kind logKind
	// at is where an append begins and what a seal ends at.
	at      queue.Offset
	records []record
	read    *Read
}

type logKind uint8

const (
	logAppend logKind = iota
	logSeal
	logRead
)

func (t *logStep) observes() bool { return t.kind == logRead }

// String implements step.
func (t *logStep) String() string {
	switch t.kind {
	case logSeal:
		return fmt.Sprintf("seal at %d", t.at)
	case logRead:
		text := fmt.Sprintf("read [%d,%d)", t.read.From, t.read.Next)
		if t.read.Sealed {
			text += ", the sealed end"
		} else if t.read.AtEnd {
			text += ", the end"
		}
		for _, s := range t.read.Seen[:min(len(t.read.Seen), 6)] {
			text += fmt.Sprintf(" %d:%s", s.Offset, s.Body)
		}
		return text
	}
	text := fmt.Sprintf("append at %d:", t.at)
	for _, r := range t.records[:min(len(t.records), 6)] {
		if r.blank {
			text += " (never seen)"
		} else {
			text += " " + r.body
		}
	}
	return text
}

func nextLog(s *logState, t *logStep) (*logState, bool) {
	switch t.kind {
	case logAppend:
		if s.sealed || s.next != t.at {
			return s, false
		}
		return s.with(t.records), true
	case logSeal:
		if s.sealed || s.next != t.at {
			return s, false
		}
		n := *s
		n.sealed = true
		return &n, true
	}
	r := t.read
	if r.Next > s.next || r.AtEnd && r.Next != s.next || r.Sealed && !s.sealed {
		return s, false
	}
	ok := s.shows(r)
	return s, ok
}

// shows reports whether a read of [From, Next) sees what the log holds.
func (s *logState) shows(r *Read) bool {
	i := len(r.Seen) - 1
	for ; s != nil && s.next > r.From; s = s.prev {
		for j := len(s.records) - 1; j >= 0; j-- {
			off := s.next - queue.Offset(len(s.records)-j)
			if off >= r.Next || off < r.From {
				continue
			}
			rec := &s.records[j]
			switch {
			case i >= 0 && r.Seen[i].Offset == off && !rec.blank && r.Seen[i].Body == rec.body:
				i--
			case i >= 0 && r.Seen[i].Offset == off, !rec.mayGo:
				return false
			}
		}
	}
	return i < 0
}

// sending is a message that was sent, and the call it was sent by.
type sending struct {
	by  *Produce
	msg *Sent
	// placed: at is where it is, by its answer or, for want of that, where it was seen first.
	placed bool
	at     queue.MessageID
}

// sightings collects what is known of segments' contents.
type sightings struct {
	o    *Options
	sent map[string]*sending // by topic and body
	segs map[queue.SegmentID]*segmentSeen
	// unplaced counts, by topic, messages that may be somewhere; since is when the first of them was sent.
	unplaced map[string]int
	since    map[string]time.Duration
}

// segmentSeen is what is known of one segment.
type segmentSeen struct {
	topic string
	// end is the lowest offset that nobody said there is a message at or above.
	end   queue.Offset
	steps []step
	// filled are the offsets that an append is known for.
	filled map[queue.Offset]bool
	seals  map[queue.Offset]bool
	hints  []string
}

func sentKey(topic, body string) string { return topic + "\x00" + body }

func logParts(h *History, o *Options) []part {
	s := &sightings{
		o: o, sent: make(map[string]*sending), segs: make(map[queue.SegmentID]*segmentSeen),
		unplaced: make(map[string]int), since: make(map[string]time.Duration),
	}
	for _, p := range h.Produces {
		s.sends(p)
	}
	reads := slices.Clone(h.Reads)
	for _, c := range h.Claims {
		reads = append(reads, readsOf(c)...)
	}
	slices.SortStableFunc(reads, func(a, b *Read) int { return cmp.Compare(a.Return, b.Return) })
	for _, r := range reads {
		s.sees(r)
	}
	for _, p := range h.Produces {
		s.appends(p)
	}
	var out []part
	for _, id := range slices.Sorted(maps.Keys(s.segs)) {
		seg := s.segs[id]
		s.blanks(seg)
		seg.narrow()
		out = append(out, part{
			model: logName, key: fmt.Sprintf("segment %s of %s", id, seg.topic), steps: seg.steps, hints: seg.hints,
			states: deterministic(&logState{}, nextLog, equalLogs),
		})
	}
	return out
}

func (s *sightings) segment(id queue.SegmentID, topic string) *segmentSeen {
	seg := s.segs[id]
	if seg == nil {
		seg = &segmentSeen{topic: topic, filled: make(map[queue.Offset]bool), seals: make(map[queue.Offset]bool)}
		s.segs[id] = seg
	}
	return seg
}

func (s *sightings) sends(p *Produce) {
	for i := range p.Messages {
		m := &p.Messages[i]
		s.sent[sentKey(p.Topic, m.Body)] = &sending{by: p, msg: m, placed: m.Answer == OK, at: m.At}
	}
}

// readsOf is what a claim's deliveries show of segments: a run of each claim's is one read.
func readsOf(c *Claim) []*Read {
	got := slices.SortedFunc(slices.Values(c.Got), func(a, b Delivery) int {
		return cmp.Or(cmp.Compare(a.ID.Segment, b.ID.Segment), cmp.Compare(a.ID.Offset, b.ID.Offset))
	})
	var out []*Read
	for i := range got {
		d := &got[i]
		if n := len(out); n == 0 || out[n-1].Segment != d.ID.Segment || out[n-1].Next != d.ID.Offset {
			out = append(out, &Read{Span: c.Span, Topic: c.Topic, Segment: d.ID.Segment, From: d.ID.Offset})
		}
		r := out[len(out)-1]
		r.Seen, r.Next = append(r.Seen, Seen{d.ID.Offset, d.Body}), d.ID.Offset+1
	}
	return out
}

// sees takes a read in. What was seen first of a message of unknown fate tells where it is.
func (s *sightings) sees(r *Read) {
	seg := s.segment(r.Segment, r.Topic)
	seg.end = max(seg.end, r.Next)
	seg.steps = append(seg.steps, &logStep{Span: r.Span, kind: logRead, read: r})
	if r.Sealed && !seg.seals[r.Next] {
		if len(seg.seals) == 0 {
			seg.steps = append(seg.steps, &logStep{Span: Span{Return: Open}, kind: logSeal, at: r.Next})
		}
		seg.seals[r.Next] = true
	}
	copies := slices.Contains(s.o.Copies, r.Topic)
	for _, seen := range r.Seen {
		at := queue.MessageID{Segment: r.Segment, Offset: seen.Offset}
		key := sentKey(r.Topic, seen.Body)
		found := s.sent[key]
		switch {
		case copies && (found == nil || found.by == nil):
			if seg.filled[seen.Offset] {
				break
			}
			s.sent[key] = &sending{placed: true, at: at}
			seg.append(Span{Return: Open}, seen.Offset, []record{{body: seen.Body, mayGo: true}})
		case found == nil:
			seg.hint("%s at %d was sent by nobody", seen.Body, seen.Offset)
		case found.placed && found.at != at:
			seg.hint("%s is at %d, and at %s", seen.Body, seen.Offset, found.at)
		case found.msg.Answer == Void:
			seg.hint("%s at %d was refused", seen.Body, seen.Offset)
		case !found.placed:
			found.placed, found.at = true, at
		}
	}
}

func (g *segmentSeen) hint(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(g.hints, text) {
		g.hints = append(g.hints, text)
	}
}

func (g *segmentSeen) append(span Span, at queue.Offset, records []record) {
	g.steps = append(g.steps, &logStep{Span: span, kind: logAppend, at: at, records: records})
	for i := range records {
		g.filled[at+queue.Offset(i)] = true
	}
	g.end = max(g.end, at+queue.Offset(len(records)))
}

// appends makes an append of each run of a call's messages that was acknowledged, and one of each message
// that was not, and was seen.
func (s *sightings) appends(p *Produce) {
	var placed []*sending
	for i := range p.Messages {
		switch f := s.sent[sentKey(p.Topic, p.Messages[i].Body)]; {
		case f.placed && f.msg.Answer != Void:
			placed = append(placed, f)
		case f.msg.Answer == Unknown:
			s.unplaced[p.Topic]++
			if since, ok := s.since[p.Topic]; !ok || p.Call < since {
				s.since[p.Topic] = p.Call
			}
		}
	}
	slices.SortFunc(placed, func(a, b *sending) int {
		return cmp.Or(cmp.Compare(a.at.Segment, b.at.Segment), cmp.Compare(a.at.Offset, b.at.Offset))
	})
	for len(placed) > 0 {
		first, n := placed[0], 1
		for known := first.msg.Answer == OK; n < len(placed) && known; n++ {
			next := placed[n]
			if next.msg.Answer != OK || next.at.Segment != first.at.Segment || next.at.Offset != first.at.Offset+queue.Offset(n) {
				break
			}
		}
		records := make([]record, n)
		for i, f := range placed[:n] {
			records[i] = record{body: f.msg.Body, mayGo: f.msg.MayGo}
		}
		s.segment(first.at.Segment, p.Topic).append(p.Span.of(first.msg.Answer), first.at.Offset, records)
		placed = placed[n:]
	}
}

// blanks fills offsets that nobody saw and no answer names: messages of unknown fate must be there. There are no more
// of them than were sent.
func (s *sightings) blanks(seg *segmentSeen) {
	copies := slices.Contains(s.o.Copies, seg.topic)
	for off := range seg.end {
		if seg.filled[off] {
			continue
		}
		if !copies {
			if s.unplaced[seg.topic] == 0 {
				seg.hint("nobody sent what is at %d", off)
				continue
			}
			s.unplaced[seg.topic]--
		}
		span := Span{Call: s.since[seg.topic], Return: Open}
		if copies {
			span.Call = 0
		}
		seg.append(span, off, []record{{mayGo: true, blank: true}})
	}
}

// narrow says of each append no more than follows from the log's order, but that: it is after whatever is below it
// and after every end that was seen there, and before whatever shows that there is something at its offset. Where that
// cannot be, the search finds out.
func (g *segmentSeen) narrow() {
	var appends []*logStep
	var reads []*Read
	for _, s := range g.steps {
		switch t, _ := s.(*logStep); t.kind {
		case logAppend:
			appends = append(appends, t)
		case logRead:
			reads = append(reads, t.read)
		case logSeal:
		}
	}
	slices.SortStableFunc(appends, func(a, b *logStep) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(reads, func(a, b *Read) int { return cmp.Compare(a.Next, b.Next) })
	calls := make([]time.Duration, len(appends))
	i, call := 0, time.Duration(0)
	for n, a := range appends {
		for ; i < len(reads) && reads[i].Next <= a.at; i++ {
			if reads[i].AtEnd {
				call = max(call, reads[i].Call)
			}
		}
		call = max(call, a.Call)
		calls[n] = call
	}
	i, back := len(reads)-1, Open
	for n, a := range slices.Backward(appends) {
		for ; i >= 0 && reads[i].Next > a.at; i-- {
			back = min(back, reads[i].Return)
		}
		if back = min(back, a.Return); calls[n] <= back {
			a.Call, a.Return = calls[n], back
		}
	}
}
