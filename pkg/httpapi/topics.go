package httpapi

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

func (s *server) createTopic(w http.ResponseWriter, r *http.Request) error {
	name, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var in wire.TopicConfig
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	// A config is a patch of nothing, but for the attributes.
	patch, err := topicPatch(wire.TopicPatch{
		DefaultDelay: in.DefaultDelay, MaxDelay: in.MaxDelay, DefaultTTL: in.DefaultTTL,
		MaxMessageBytes: in.MaxMessageBytes, PartitionKey: in.PartitionKey, Scaling: in.Scaling,
		Retention: in.Retention, DedupWindow: in.DedupWindow, Compaction: in.Compaction,
	}, nil)
	if err != nil {
		return err
	}
	st, created, err := s.Topics.Create(r.Context(), name, topics.Config{
		DefaultDelay: deref(patch.DefaultDelay), MaxDelay: deref(patch.MaxDelay), DefaultTTL: deref(patch.DefaultTTL),
		MaxMessageBytes: deref(patch.MaxMessageBytes), PartitionKey: deref(patch.PartitionKey),
		MinSegments: deref(patch.MinSegments), Attributes: in.Attributes,
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return s.writeTopic(w, r, status, st)
}

func (s *server) updateTopic(w http.ResponseWriter, r *http.Request) error {
	name, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	var in wire.TopicPatch
	if err := s.readJSON(w, r, &in); err != nil {
		return err
	}
	var segments *int
	if in.Scaling != nil && in.Scaling.MaxSegments != nil && in.Scaling.MinSegments == nil {
		st, err := s.Topics.Status(r.Context(), name)
		if err != nil {
			return err
		}
		segments = &st.Config.MinSegments
	}
	patch, err := topicPatch(in, segments)
	if err != nil {
		return err
	}
	st, err := s.Topics.Update(r.Context(), name, patch)
	if err != nil {
		return err
	}
	return s.writeTopic(w, r, http.StatusOK, st)
}

func (s *server) getTopic(w http.ResponseWriter, r *http.Request) error {
	name, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	st, err := s.Topics.Status(r.Context(), name)
	if err != nil {
		return err
	}
	return s.writeTopic(w, r, http.StatusOK, st)
}

func (s *server) deleteTopic(w http.ResponseWriter, r *http.Request) error {
	name, _, err := names(r)
	if err != nil {
		return err
	}
	if _, err := parseQuery(r); err != nil {
		return err
	}
	if err := s.Topics.Delete(r.Context(), name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) listTopics(w http.ResponseWriter, r *http.Request) error {
	q, err := parseQuery(r, "prefix", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := q.limit(queue.MaxPageSize)
	if err != nil {
		return err
	}
	cursor, err := q.cursor()
	if err != nil {
		return err
	}
	page, next, err := s.Topics.List(r.Context(), q.text("prefix"), cursor, limit)
	if err != nil {
		return err
	}
	out := wire.TopicList{Topics: make([]wire.TopicEntry, len(page)), NextCursor: opaque(next)}
	for i, t := range page {
		out.Topics[i] = wire.TopicEntry{Name: t.Name, ID: t.ID, CreatedAt: wire.Time(t.Created)}
	}
	return s.writeJSON(w, http.StatusOK, out)
}

func (s *server) listSegments(w http.ResponseWriter, r *http.Request) error {
	name, _, err := names(r)
	if err != nil {
		return err
	}
	q, err := parseQuery(r, "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := q.limit(queue.MaxPageSize)
	if err != nil {
		return err
	}
	after, err := q.cursor()
	if err != nil {
		return err
	}
	st, err := s.Topics.Status(r.Context(), name)
	if err != nil {
		return err
	}
	out := wire.SegmentList{Segments: []wire.Segment{}}
	for i := range st.Segments {
		seg := &st.Segments[i]
		if at := segmentPlace(seg); at <= after {
			continue
		}
		if len(out.Segments) == limit {
			out.NextCursor = opaque(segmentPlace(&st.Segments[i-1]))
			break
		}
		out.Segments = append(out.Segments, wire.Segment{
			ID: seg.ID, Range: seg.Range, State: segmentState(seg.Sealed), FirstOffset: seg.First, NextOffset: seg.Next,
			Bytes: seg.Bytes, CreatedAt: wire.Time(seg.Created),
			Predecessors: noNil(seg.Predecessors), Successors: noNil(seg.Successors),
		})
	}
	return s.writeJSON(w, http.StatusOK, out)
}

// segmentPlace orders segments as a status lists them: by creation, then id.
func segmentPlace(seg *topics.SegmentStatus) string {
	ms := strconv.FormatInt(int64(seg.Created), 10)
	const digits = 19 // of the largest int64
	return "0000000000000000000"[:digits-len(ms)] + ms + string(seg.ID)
}

func segmentState(sealed bool) string {
	if sealed {
		return "sealed"
	}
	return "open"
}

func (s *server) writeTopic(w http.ResponseWriter, r *http.Request, status int, st topics.Status) error {
	delayed, more, err := s.delayedCount(r, st)
	if err != nil {
		return err
	}
	out := wire.Topic{
		Name: st.Name, ID: st.ID, State: string(st.State), CreatedAt: wire.Time(st.Created),
		ModifiedAt: wire.Time(st.Modified), Config: topicConfig(st.Config),
		Messages: wire.MessageCounts{Ready: st.Messages, Delayed: uint64(delayed), DelayedMore: more, Bytes: st.Bytes},
	}
	for i := range st.Segments {
		if st.Segments[i].Sealed {
			out.Segments.Sealed++
		} else {
			out.Segments.Open++
		}
	}
	return s.writeJSON(w, status, out)
}

// maxCounted bounds the delayed messages that a status counts, one by one in the index.
const maxCounted = 10_000

// delayedCount counts a topic's delayed messages; more says that there are further ones. The use case
// asks no store where the topic was never delayed.
func (s *server) delayedCount(r *http.Request, st topics.Status) (n int, more bool, err error) {
	n, more, err = s.Delayed.Count(r.Context(), st.Name, maxCounted)
	if queue.Is(err, queue.KindNotFound) {
		// Deleted since: what the call did, and what the topic was, is true all the same. To tell
		// who created it that there is no such topic would not be.
		return 0, false, nil
	}
	return n, more, err
}

func topicConfig(c topics.Config) wire.TopicConfig {
	return wire.TopicConfig{
		DefaultDelay: wire.Of(c.DefaultDelay.Seconds()), MaxDelay: wire.Of(c.MaxDelay.Seconds()),
		DefaultTTL: wire.Of(c.DefaultTTL.Seconds()), MaxMessageBytes: wire.Of(c.MaxMessageBytes),
		PartitionKey: wire.Of(c.PartitionKey),
		Scaling:      &wire.Scaling{MinSegments: wire.Of(c.MinSegments), MaxSegments: wire.Of(c.MinSegments)},
		Attributes:   c.Attributes, DedupWindow: wire.Of(0.0), Compaction: wire.Of(wire.CompactionNone),
	}
}

// topicPatch converts what the caller sent. The limits of each field are the use case's to check;
// here are those without which a number could not become a duration, and the features that are not
// available. segments is the topic's number, if it is known.
func topicPatch(in wire.TopicPatch, segments *int) (topics.Patch, error) {
	out := topics.Patch{
		MaxMessageBytes: in.MaxMessageBytes, PartitionKey: in.PartitionKey, Attributes: in.Attributes,
	}
	var err error
	if out.DefaultDelay, err = seconds("default_delay", in.DefaultDelay, 0, queue.MaxMaxDelay); err != nil {
		return out, err
	}
	// A max_delay or max_message_bytes of 0 would be taken as absent.
	if out.MaxDelay, err = seconds("max_delay", in.MaxDelay, time.Millisecond, queue.MaxMaxDelay); err != nil {
		return out, err
	}
	if out.DefaultTTL, err = seconds("default_ttl", in.DefaultTTL, 0, queue.MaxTTL); err != nil {
		return out, err
	}
	if n := in.MaxMessageBytes; n != nil && (*n < 1 || *n > queue.MaxInlineMessageBytes) {
		return out, queue.Invalid("max_message_bytes", queue.MaxInlineMessageBytes, "must be 1 to %d", queue.MaxInlineMessageBytes)
	}
	if in.Scaling != nil {
		if out.MinSegments, err = minSegments(in.Scaling, segments); err != nil {
			return out, err
		}
	}
	return out, refuseUnavailable(in)
}

func minSegments(in *wire.Scaling, segments *int) (*int, error) {
	if n := in.MinSegments; n != nil && (*n < 1 || *n > queue.MaxSegments) {
		return nil, queue.Invalid("scaling.min_segments", queue.MaxSegments, "must be 1 to %d", queue.MaxSegments)
	}
	least := 1
	if n := cmp.Or(in.MinSegments, segments); n != nil {
		least = *n
	}
	switch {
	case in.TargetMessagesPerSecond != nil:
		return nil, unavailable("scaling.target_messages_per_second")
	case in.TargetBytesPerSecond != nil:
		return nil, unavailable("scaling.target_bytes_per_second")
	case in.MaxSegments != nil && *in.MaxSegments != least:
		return nil, unavailable("scaling.max_segments")
	}
	return in.MinSegments, nil
}

// refuseUnavailable refuses the settings of features that this version does not have: to take them
// and do nothing would let their owner believe in them.
func refuseUnavailable(in wire.TopicPatch) error {
	switch {
	case in.Retention != nil:
		return unavailable("retention")
	case in.DedupWindow != nil && *in.DedupWindow != 0:
		return unavailable("dedup_window")
	case in.Compaction != nil && *in.Compaction != wire.CompactionNone:
		return unavailable("compaction")
	}
	return nil
}

func unavailable(field string) error {
	return queue.Invalid(field, nil, "is not available in this version")
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// noNil makes an absent list an empty one, which JSON writes as [].
func noNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
