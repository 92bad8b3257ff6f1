package topics

import (
	"maps"
	"slices"
	"sort"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Map is what a caller needs to know of a topic to route messages and to find its subscriptions: a
// snapshot, possibly a few seconds old, never changed. A commit that meets a sealed or absent
// segment reloads it.
type Map struct {
	Name  string
	Topic *meta.Topic
	// Version is the topic record's.
	Version meta.Version
	// Segments are all segments, open and sealed, by creation and id.
	Segments []*meta.Segment
	// Open are the open segments by slot range; they tile the ring.
	Open []*meta.Segment
	// Subscriptions by name.
	Subscriptions map[string]*meta.Subscription
	// Rule is the topic's partition_key rule, parsed; the zero Rule if it has none.
	Rule Rule

	byID     map[queue.SegmentID]*meta.Segment
	versions map[queue.SegmentID]meta.Version
}

// ID is the topic's id.
func (m *Map) ID() queue.TopicID { return m.Topic.ID }

// Route finds the open segment that owns a slot.
func (m *Map) Route(slot queue.Slot) *meta.Segment {
	i := sort.Search(len(m.Open), func(i int) bool { return m.Open[i].Range.Hi > uint32(slot) })
	return m.Open[i]
}

// Segment finds a segment by id; nil if the topic has none of that id.
func (m *Map) Segment(id queue.SegmentID) *meta.Segment {
	if m.byID != nil {
		return m.byID[id]
	}
	i := slices.IndexFunc(m.Segments, func(s *meta.Segment) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return m.Segments[i]
}

// SegmentVersion is the version of a segment's descriptor.
func (m *Map) SegmentVersion(id queue.SegmentID) meta.Version { return m.versions[id] }

// With is the map as puts have changed it: puts of the topic and of segments, in any order.
func (m *Map) With(puts []meta.Put) (*Map, error) {
	n := &Map{
		Name: m.Name, Topic: m.Topic, Version: m.Version, Subscriptions: m.Subscriptions,
		versions: maps.Clone(m.versions),
	}
	changed := make(map[queue.SegmentID]*meta.Segment)
	for _, put := range puts {
		switch r := put.Record.(type) {
		case *meta.Topic:
			n.Topic, n.Version = r, put.Version
		case *meta.Segment:
			changed[r.ID] = r
			n.versions[r.ID] = put.Version
		}
	}
	for _, seg := range m.Segments {
		if to := changed[seg.ID]; to != nil {
			seg = to
			delete(changed, seg.ID)
		}
		n.Segments = append(n.Segments, seg)
	}
	for _, seg := range changed {
		n.Segments = append(n.Segments, seg)
	}
	return n.index()
}

// current reports whether the segments are those of the topic record: each change of the map makes
// segments of the topic's next epoch, and the records of a partition are not read at one instant.
func (m *Map) current() bool {
	newest := queue.Epoch(0)
	for _, s := range m.Segments {
		newest = max(newest, s.Epoch)
	}
	return newest == m.Topic.Epoch && m.tiles()
}

// tiles reports whether the open segments cover the ring exactly (invariant 4).
func (m *Map) tiles() bool {
	edge := uint32(0)
	for _, s := range m.Open {
		if s.Range.Lo != edge || !s.Range.Valid() {
			return false
		}
		edge = s.Range.Hi
	}
	return edge == queue.Slots
}
