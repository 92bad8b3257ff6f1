package httpapi

import (
	"net/http"
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
	})
	if err != nil {
		return err
	}
	st, created, err := s.Topics.Create(r.Context(), name, topics.Config{
		DefaultDelay: deref(patch.DefaultDelay), MaxDelay: deref(patch.MaxDelay), DefaultTTL: deref(patch.DefaultTTL),
		MaxMessageBytes: deref(patch.MaxMessageBytes), PartitionKey: deref(patch.PartitionKey),
		MinSegments: deref(patch.MinSegments), MaxSegments: deref(patch.MaxSegments),
		TargetMessages: deref(patch.TargetMessages), TargetBytes: deref(patch.TargetBytes), Attributes: in.Attributes,
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
	patch, err := topicPatch(in)
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
	limit, cursor, err := q.page()
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

func (s *server) writeTopic(w http.ResponseWriter, r *http.Request, status int, st topics.Status) error {
	delayed, more, err := s.delayedCount(r, st)
	if err != nil {
		return err
	}
	out := wire.Topic{
		Name: st.Name, ID: st.ID, State: string(st.State), CreatedAt: wire.Time(st.Created),
		ModifiedAt: wire.Time(st.Modified), Config: topicConfig(st.Config),
		Scaling: wire.Policy{
			MinSegments: st.Policy.Min, MaxSegments: st.Policy.Max,
			TargetMessagesPerSecond: st.Policy.Messages, TargetBytesPerSecond: st.Policy.Bytes,
		},
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
		Scaling: &wire.Scaling{
			MinSegments: wire.Of(c.MinSegments), MaxSegments: wire.Of(c.MaxSegments),
			TargetMessagesPerSecond: wire.Of(c.TargetMessages), TargetBytesPerSecond: wire.Of(c.TargetBytes),
		},
		Attributes: c.Attributes, DedupWindow: wire.Of(0.0), Compaction: wire.Of(wire.CompactionNone),
	}
}

// topicPatch converts what the caller sent. The limits of each field are the use case's to check;
// here are those without which a number could not become a duration, and the features that are not
// available.
func topicPatch(in wire.TopicPatch) (topics.Patch, error) {
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
	if n := in.MaxMessageBytes; n != nil {
		if err := queue.Whole("max_message_bytes", *n, 1, queue.MaxInlineMessageBytes); err != nil {
			return out, err
		}
	}
	if c := in.Scaling; c != nil {
		// A min_segments of 0 would be taken as absent.
		if n := c.MinSegments; n != nil {
			if err := queue.Whole("scaling.min_segments", *n, 1, queue.MaxSegments); err != nil {
				return out, err
			}
		}
		out.MinSegments, out.MaxSegments = c.MinSegments, c.MaxSegments
		out.TargetMessages, out.TargetBytes = c.TargetMessagesPerSecond, c.TargetBytesPerSecond
	}
	return out, refuseUnavailable(in)
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
