package sim

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// lineage is the part of the model that knows how segments came from one another.
type lineage struct {
	// segments are all descriptors, as the truth last held them.
	segments map[queue.SegmentID]*meta.Segment
}

func newLineage() lineage { return lineage{segments: make(map[queue.SegmentID]*meta.Segment)} }

// reshape is what one request did to the segments of topics, while it is judged.
type reshape struct {
	made, sealed []*meta.Segment
	topic, lease *change
	event        *meta.Event
}

// shape judges a change of segments. Invariant 4 is that open segments tile the ring, and that successors
// own exactly their predecessors' slots; and all of a change happens at one instant.
func (t *txn) shape(all []change) {
	var r reshape
	for i := range all {
		c := &all[i]
		switch rec := present(c).(type) {
		case *meta.Segment:
			t.descriptor(&r, c)
		case *meta.Topic:
			r.topic = c
		case *meta.Event:
			if c.before == nil {
				r.event = rec
			}
		case *meta.Lease:
			r.lease = c
		}
	}
	t.epoch(&r)
	if len(r.made)+len(r.sealed) > 0 {
		t.reshaped(&r)
	}
	if r.event != nil && r.event.By != 0 {
		t.led(&r)
	}
}

// descriptor judges one descriptor: it is made, sealed once, and otherwise never changed.
func (t *txn) descriptor(r *reshape, c *change) {
	before, _ := c.before.(*meta.Segment)
	after, _ := c.after.(*meta.Segment)
	switch {
	case after == nil:
		delete(t.m.segments, before.ID)
		if topic := t.m.topics[before.Topic]; topic != nil && topic.State == meta.TopicOpen {
			t.find("segments", "the descriptor of %s is gone", before.ID)
		}
		return
	case before == nil:
		r.made = append(r.made, after)
	case before.Sealed == 0 && after.Sealed != 0:
		was := *after
		was.Sealed, was.Successors = 0, before.Successors
		if !reflect.DeepEqual(&was, before) {
			t.find("segments", "%s is sealed, and altered besides", after.ID)
		}
		r.sealed = append(r.sealed, after)
	case !reflect.DeepEqual(before, after):
		t.find("segments", "the descriptor of %s is altered", after.ID)
	}
	t.m.segments[after.ID] = after
}

// epoch judges the topic's record: its epoch counts the changes, and a change changes nothing else of it.
func (t *txn) epoch(r *reshape) {
	if r.topic == nil {
		return
	}
	before, _ := r.topic.before.(*meta.Topic)
	after, _ := r.topic.after.(*meta.Topic)
	if before == nil || after == nil {
		return
	}
	want := before.Epoch
	if len(r.sealed) > 0 {
		want++
		if !reflect.DeepEqual(before.Config, after.Config) || before.State != after.State {
			t.find("segments", "a change of %s alters its config or state", after.ID)
		}
	}
	if after.Epoch != want {
		t.find("segments", "%s goes from epoch %d to %d", after.ID, before.Epoch, after.Epoch)
	}
}

// reshaped judges segments that were made and sealed.
func (t *txn) reshaped(r *reshape) {
	id := slices.Concat(r.made, r.sealed)[0].Topic
	topic, _, err := meta.Fetch[*meta.Topic](t.m.w.background(), t.m.w.truth, meta.TopicKey(id))
	if err != nil || topic.State != meta.TopicOpen {
		if len(r.sealed) > 0 {
			t.find("segments", "%s is not open, and its segments are changed", id)
		}
		return
	}
	if len(r.sealed) > 0 {
		switch {
		case r.topic == nil:
			t.find("segments", "segments of %s are changed, and its epoch is not", id)
			return
		case r.event == nil:
			t.find("segments", "segments of %s are changed, and no event tells of it", id)
		}
		t.inPlace(r, topic.Epoch)
		t.m.w.count("changes of segments")
	}
	for _, seg := range slices.Concat(r.made, r.sealed) {
		head, _, err := meta.Fetch[*meta.Head](t.m.w.background(), t.m.w.truth, meta.HeadKey(seg.ID))
		if err != nil || head.Range != seg.Range || head.Epoch != seg.Epoch || head.Sealed != (seg.Sealed != 0) {
			t.find("segments", "%s does not agree with its head %+v, %v", seg.ID, head, err)
		}
	}
	open := t.m.ring(id)
	least, most := bounds(topic)
	switch gain := len(r.made) - len(r.sealed); {
	case len(r.sealed) == 0:
	case gain < 0 && len(open) < least:
		t.find("bounds", "%s is merged to %d segments, fewer than %d", id, len(open), least)
	case gain > 0 && len(open) > most:
		t.find("bounds", "%s is split to %d segments, more than %d", id, len(open), most)
	}
}

// bounds are a topic's least and greatest number of open segments.
func bounds(t *meta.Topic) (least, most int) {
	const byDefault = 256
	if most = t.Config.MaxSegments; most == 0 {
		most = byDefault
	}
	return t.Config.MinSegments, most
}

// inPlace holds that made takes exactly the place of sealed, and that each knows the others.
func (t *txn) inPlace(r *reshape, epoch queue.Epoch) {
	if len(r.made) == 0 {
		t.find("segments", "segments are sealed, and nothing succeeds them")
		return
	}
	for _, pair := range []struct {
		these, those []*meta.Segment
		names        func(*meta.Segment) []queue.SegmentID
		what         string
	}{
		{r.made, r.sealed, func(s *meta.Segment) []queue.SegmentID { return s.Predecessors }, "predecessors"},
		{r.sealed, r.made, func(s *meta.Segment) []queue.SegmentID { return s.Successors }, "successors"},
	} {
		for _, one := range pair.these {
			var want []queue.SegmentID
			covered := uint32(0)
			for _, other := range pair.those {
				if lo, hi := max(one.Range.Lo, other.Range.Lo), min(one.Range.Hi, other.Range.Hi); lo < hi {
					want = append(want, other.ID)
					covered += hi - lo
				}
			}
			have := slices.Clone(pair.names(one))
			slices.Sort(want)
			slices.Sort(have)
			if !slices.Equal(want, have) || covered != one.Range.Len() {
				t.find("tiles", "%s of %v has the %s %v, which cover %d slots", one.ID, one.Range, pair.what, have, covered)
			}
		}
	}
	for _, seg := range r.made {
		if seg.Epoch != epoch {
			t.find("segments", "%s is made with epoch %d in epoch %d", seg.ID, seg.Epoch, epoch)
		}
	}
}

// led holds that a leader's change was made under the leader's lease (invariant 9): it renews the one that it
// names, which nobody has taken or given up.
func (t *txn) led(r *reshape) {
	var before, after *meta.Lease
	if r.lease != nil {
		before, _ = r.lease.before.(*meta.Lease)
		after, _ = r.lease.after.(*meta.Lease)
	}
	if before == nil || after == nil || before.Free || before.Epoch != r.event.By || after.Epoch != r.event.By {
		t.find("fencing", "the leader of epoch %d makes a change of %s, and the lease goes from %+v to %+v", r.event.By, r.event.Name, before, after)
	}
}

// open are the open segments of a topic by slot range.
func (m *model) open(id queue.TopicID) []*meta.Segment {
	q := meta.Range{PK: meta.TopicPK(id), From: meta.SegmentPrefix, To: meta.SegmentPrefixEnd, Limit: meta.MaxQueryLimit}
	var out []*meta.Segment
	for id != "" {
		page, err := m.w.truth.Query(m.w.background(), q)
		if err != nil {
			break
		}
		for _, item := range page.Items {
			if seg, ok := item.Record.(*meta.Segment); ok && seg.Sealed == 0 {
				out = append(out, seg)
			}
			q.From = meta.After(item.Record.Key().SK)
		}
		if !page.More {
			break
		}
	}
	slices.SortFunc(out, func(a, b *meta.Segment) int { return cmp.Compare(a.Range.Lo, b.Range.Lo) })
	return out
}

// ring gives a topic's open segments, and holds that they tile the ring exactly.
func (m *model) ring(id queue.TopicID) []*meta.Segment {
	open := m.open(id)
	edge := uint32(0)
	for _, seg := range open {
		if seg.Range.Lo != edge || !seg.Range.Valid() {
			m.w.find("tiles", "the open segments of %s leave or share slots at %d: %v", id, edge, seg.Range)
			return open
		}
		edge = seg.Range.Hi
	}
	if edge != queue.Slots {
		m.w.find("tiles", "the open segments of %s end at %d", id, edge)
	}
	return open
}
