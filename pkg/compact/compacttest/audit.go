// Package compacttest tells whether a pair of stores holds exactly what it should: everything that can be
// reached from the namespace, and nothing else. Tests of the compactor and the simulator ask it.
//
// Vocabulary: live is what can be reached; lost is what is live and not there; leaked is what is there and
// not live.
//
// Invariants: it shares no code with the compactor, and needs the whole of both stores.
//
// Non-goals: whether the contents are right.
package compacttest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Findings are what an audit found, each as a line.
type Findings struct {
	Lost, Leaked []string
}

// audit is what is live.
type audit struct {
	now      queue.Millis
	records  []meta.Item
	topics   map[queue.TopicID]bool
	segments map[queue.SegmentID]bool
	subs     map[queue.SubscriptionID]bool
	// bytes are objects ("b/…") and payload records ("p/…"), holds those with a hold's id.
	bytes, holds map[string]bool
	there        map[string]bool
}

func name(object string, inline bool) string {
	if inline {
		return "p/" + object
	}
	return "b/" + object
}

// Audit looks at all records and the keys of all objects of a system that is at rest: nothing is due any
// more at now, and no process is at work. Records that the store removes by itself are no leak.
func Audit(records []meta.Item, objects []string, now queue.Millis) Findings {
	a := &audit{
		now: now, records: records, topics: make(map[queue.TopicID]bool), segments: make(map[queue.SegmentID]bool),
		subs: make(map[queue.SubscriptionID]bool), bytes: make(map[string]bool), holds: make(map[string]bool), there: make(map[string]bool),
	}
	a.reach()
	var f Findings
	for _, o := range objects {
		a.there[name(o, false)] = true
		if !a.bytes[name(o, false)] {
			f.Leaked = append(f.Leaked, "object "+o)
		}
	}
	for _, item := range records {
		if p, ok := item.Record.(*meta.Payload); ok {
			a.there[name(p.ID, true)] = true
		}
	}
	for _, item := range records {
		if !a.live(item.Record) {
			f.Leaked = append(f.Leaked, fmt.Sprintf("%s %s: %+v", item.Record.Kind(), item.Record.Key(), item.Record))
		}
	}
	for o := range a.bytes {
		if !a.there[o] {
			f.Lost = append(f.Lost, o)
		}
	}
	for o := range a.holds {
		if !slices.ContainsFunc(records, func(i meta.Item) bool {
			h, ok := i.Record.(*meta.Hold)
			return ok && name(h.Object, h.Inline)+" "+h.ID == o
		}) {
			f.Lost = append(f.Lost, "hold "+o)
		}
	}
	slices.Sort(f.Lost)
	return f
}

// reach goes from the names to the bytes.
func (a *audit) reach() {
	for _, item := range a.records {
		if n, ok := item.Record.(*meta.Name); ok {
			a.topics[n.Topic] = true
		}
	}
	for _, item := range a.records {
		switch r := item.Record.(type) {
		case *meta.Segment:
			a.segments[r.ID] = a.topics[r.Topic]
		case *meta.Subscription:
			a.subs[r.ID] = a.topics[r.Topic]
		case *meta.Delayed:
			if a.topics[r.Topic] {
				a.refs(r.Ref)
			}
		}
	}
	for _, item := range a.records {
		switch r := item.Record.(type) {
		case *meta.Head:
			if a.segments[r.Segment] {
				a.refs(r.Tail...)
			}
		case *meta.RefPage:
			if a.segments[r.Segment] {
				a.refs(r.Refs...)
			}
		}
	}
}

func (a *audit) refs(refs ...meta.Ref) {
	for i := range refs {
		r := &refs[i]
		a.bytes[name(r.Object, r.Inline)] = true
		if r.Hold != (meta.RefID{}) {
			a.holds[name(r.Object, r.Inline)+" "+r.Hold.String()] = true
		}
	}
}

func (a *audit) live(r meta.Record) bool {
	switch r := r.(type) {
	case *meta.Topic:
		return a.topics[r.ID] && r.State != meta.TopicDeleting
	case *meta.Segment:
		return a.topics[r.Topic]
	case *meta.Subscription:
		return a.topics[r.Topic]
	case *meta.Delayed:
		return a.topics[r.Topic]
	case *meta.Forward:
		return a.topics[r.Topic]
	case *meta.Head:
		return a.segments[r.Segment]
	case *meta.RefPage:
		return a.segments[r.Segment]
	case *meta.Cursor:
		return a.segments[r.Segment] && a.subs[r.Subscription]
	case *meta.Payload:
		return a.bytes[name(r.ID, true)]
	case *meta.Hold:
		return a.holds[name(r.Object, r.Inline)+" "+r.ID]
	case *meta.Freed:
		return a.there[name(r.Run.Object, r.Run.Inline)]
	case *meta.Lease:
		seg, of := strings.CutPrefix(r.Name, "compact/")
		return !of || a.segments[queue.SegmentID(seg)]
	case *meta.Work:
		return r.Due > a.now
	case *meta.Drop, *meta.Removal:
		return false
	}
	return true // a name, a progress; what expires by itself
}
