package topics

import (
	"context"

	"github.com/spillway-mq/spillway/pkg/meta"
)

// Policy is how a topic's segments follow its load.
type Policy struct {
	// Min and Max bound the number of open segments.
	Min, Max int
	// Messages and Bytes are the load that one segment should carry, a second.
	Messages, Bytes int64
}

// Targets are the loads a second and segment that hold for topics which set none.
type Targets struct {
	Messages, Bytes int64
}

// defaultMaxSegments is a topic's max_segments unless its config says otherwise: enough for more than a
// million messages a second by the default target.
const defaultMaxSegments = 256

// CommitTarget is the commits a second that one segment should take. A DynamoDB partition has 1,000 write
// units a second, and an update of a head costs 1 to 4 of them.
const CommitTarget = 250

// CloudTargets are for segments that are partitions of DynamoDB: about what a head takes in small batches.
func CloudTargets() Targets { return Targets{Messages: 5_000, Bytes: 5 << 20} }

// LocalTargets are for segments that share one disk: there a split buys nothing until a single head is the
// limit.
func LocalTargets() Targets { return Targets{Messages: 200_000, Bytes: 256 << 20} }

// Policy is the topic's scaling policy, the service's targets where it sets none.
func (s *Service) Policy(m *Map) Policy {
	c := m.Topic.Config
	p := Policy{Min: c.MinSegments, Max: c.MaxSegments, Messages: c.TargetMessages, Bytes: c.TargetBytes}
	if p.Max == 0 {
		p.Max = max(defaultMaxSegments, p.Min)
	}
	if p.Messages == 0 {
		p.Messages = s.targets.Messages
	}
	if p.Bytes == 0 {
		p.Bytes = s.targets.Bytes
	}
	return p
}

// Score is load relative to the policy: 1 is what one segment should carry. Commits count only where they
// are of few messages: a batch of many keys goes to every segment, however many there are, so that more
// segments would not relieve any.
func (p Policy) Score(r meta.Rate) float64 {
	const few = 8 // messages a commit
	messages, bytes, commits := float64(r.Messages), float64(r.Bytes), float64(r.Commits)
	score := max(messages/float64(p.Messages), bytes/float64(p.Bytes))
	if messages <= few*commits {
		score = max(score, commits/CommitTarget)
	}
	return score
}

// Observe looks at a head as a commit has left it, at no store call, and asks the leader to look at the
// topic if the head's tail came in faster than its segment should carry. pressed says that the store
// refused for a while.
func (s *Service) Observe(ctx context.Context, m *Map, head *meta.Head, pressed bool) {
	if pressed || head != nil && s.Policy(m).fast(head) {
		s.Alert(ctx, m, pressed)
	}
}

// fast reports whether a head's tail came in faster than its segment should carry: by the tail's own times, as
// those who wrote it may have other clocks than ours.
func (p Policy) fast(head *meta.Head) bool {
	n := len(head.Tail)
	if n == 0 {
		return false
	}
	pace, ok := head.Pace(head.Tail[n-1].VisibleAt())
	return ok && p.Score(pace) > 1
}

// Alert asks the leader to look at a topic, at one write at most for each topic in a while, and wakes it.
// What fails is dropped: the next commit under load asks again.
func (s *Service) Alert(ctx context.Context, m *Map, pressed bool) {
	if !s.alerts.due(m.ID(), s.clock(), pressed) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), alertTimeout)
	defer cancel()
	if s.watch(ctx, m, pressed) == nil {
		s.wakeLeader()
	}
}

// watch puts a watch on a topic. One of load alone does not replace another, which may tell of pressure.
func (s *Service) watch(ctx context.Context, m *Map, pressed bool) error {
	w := &meta.Watch{Topic: m.ID(), Name: m.Name, Put: s.clock.Millis()}
	put := meta.Put{Record: w, If: meta.Absent(), Version: meta.NewVersion(s.ids)}
	if pressed {
		w.Pressed, put.If = w.Put, meta.Any()
	}
	_, err := s.meta.Apply(ctx, put)
	if meta.IsRefused(err, meta.ReasonExists) {
		return nil
	}
	return err
}

func (s *Service) wakeLeader() {
	if s.wake != nil {
		s.wake()
	}
}
