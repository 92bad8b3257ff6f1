package produce

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Topics finds topics by name. *topics.Service is one.
type Topics interface {
	// Open gives a cached map of the topic; no store call where the cache has it.
	Open(ctx context.Context, name string) (*topics.Map, error)
	// Reload reads the map anew.
	Reload(ctx context.Context, name string) (*topics.Map, error)
	// Observe looks at a head that a commit left.
	Observe(ctx context.Context, m *topics.Map, head *meta.Head, pressed bool)
}

// Deps are what the service stands on; all are required but Presigner, without which Uploads is
// refused.
type Deps struct {
	Meta      meta.Store
	Blob      blob.Store
	Presigner blob.Presigner
	Log       *segment.Log
	Topics    Topics
	Hub       *notify.Hub
	IDs       *queue.IDs
	Clock     queue.Clock
}

// Service takes messages in. Safe for concurrent use.
type Service struct {
	Deps
}

// New makes the service.
func New(d Deps) *Service { return &Service{d} }

// Produce takes messages one by one: it encodes, stores and commits them. The answer covers every
// message; one that was refused does not fail the others. An error is of the call as a whole:
// nothing was taken, unless its kind is OutcomeUnknown. A nil error with an Err in every run is
// possible too.
func (s *Service) Produce(ctx context.Context, req Request) (Answer, error) {
	if err := checkCount("messages", len(req.Messages), queue.MaxBatchRecords); err != nil {
		return Answer{}, err
	}
	return s.take(ctx, req.Topic, req.Guard, func(c *call) error { return c.planMessages(req) })
}

// ProduceBatch takes one encoded batch, as it is. Positions in the answer are the batch's. Errors are
// as for Produce; a batch that does not decode is KindInvalid with CodeInvalidArgument.
func (s *Service) ProduceBatch(ctx context.Context, req BatchRequest) (Answer, error) {
	return s.take(ctx, req.Topic, req.Guard, func(c *call) error { return c.planBatch(req.Data) })
}

// References takes uploaded objects. It checks that each is there, and its size, checksum and (for a
// batch file) index; it reads no payload. Positions in the answer count messages: a reference to a
// payload is one, a batch file as many as it has records, in the order of the call.
func (s *Service) References(ctx context.Context, req ReferencesRequest) (Answer, error) {
	if err := checkCount("references", len(req.References), queue.MaxReferences); err != nil {
		return Answer{}, err
	}
	return s.take(ctx, req.Topic, req.Guard, func(c *call) error { return c.planReferences(ctx, req) })
}

func checkCount(field string, n, limit int) error {
	if n == 0 {
		return queue.Invalid(field, nil, "is empty")
	}
	if n > limit {
		return queue.Invalid(field, limit, "has %d entries, more than %d", n, limit)
	}
	return nil
}

// call is one produce call under way.
type call struct {
	*Service
	topic *topics.Map
	guard *guarded
	// nonce identifies the call: refs, entries and the slot of keyless messages derive from it.
	nonce             [16]byte
	created, deadline queue.Millis
	// times are what decides over delays and expiries: the topic's, or those of the call's first try.
	times meta.MessageTimes
	// again: an earlier try of the same guarded call may have committed parts of it.
	again bool
	// delayed: some of the call's messages go to the delayed index.
	delayed bool

	units []*unit
	// object is the concatenated batches of the call, if it has any of its own.
	object []byte
	// payload is set once the object was put: inline record, or nil for a blob.
	payload *meta.Payload

	// results has one entry per message, in the call's order.
	results []result
}

// take carries a call out: guard, plan, store, commit, answer.
func (s *Service) take(ctx context.Context, topic string, g Guard, plan func(*call) error) (Answer, error) {
	m, err := s.Topics.Open(ctx, topic)
	if err != nil {
		return Answer{}, err
	}
	if m.Topic.State != meta.TopicOpen {
		return Answer{}, &queue.Error{Op: "produce", Subject: topic, Kind: queue.KindSealed, Code: queue.CodeTopicSealed}
	}
	c := &call{Service: s, topic: m, nonce: s.IDs.Nonce(), created: s.Clock.Millis(), times: m.Topic.Config.Times()}
	if err := validateGuard(g); err != nil {
		return Answer{}, err
	}
	if answer, done, err := c.begin(ctx, g); err != nil || done {
		return answer, err
	}
	c.deadline = s.Clock.Millis().Add(queue.CommitTimeout)
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, queue.CommitTimeout)
	defer cancel()
	if err := c.run(ctx, plan); err != nil {
		c.abandon(ctx)
		return Answer{}, late(caller, err)
	}
	for i := range c.results {
		c.results[i].err = late(caller, c.results[i].err)
	}
	answer := c.answer()
	c.finish(ctx, answer)
	return answer, nil
}

// late words the end of a call whose time for the commit was up, while its caller still waits. A store's call that
// may have taken effect ends as OutcomeUnknown, not as Canceled: here nothing was appended.
func late(caller context.Context, err error) error {
	if caller.Err() != nil || !queue.Is(err, queue.KindCanceled) {
		return err
	}
	return &queue.Error{Op: "produce", Kind: queue.KindUnavailable, Message: fmt.Sprintf("the stores did not answer within %v; nothing was appended", queue.CommitTimeout), Err: err}
}

// run plans the call and carries it out; anew if it turns out that an earlier try found a delayed topic
// where this one found a normal one, or the other way round.
func (c *call) run(ctx context.Context, plan func(*call) error) error {
	for range maxPlans {
		again, err := c.once(ctx, plan)
		if err != nil || !again {
			return err
		}
	}
	return underWay(c.topic.Name, nil)
}

// maxPlans bounds how often a call is planned: as the topic says, as a first try that went to segments, or
// as one that went to the delayed index.
const maxPlans = 3

func (c *call) once(ctx context.Context, plan func(*call) error) (again bool, err error) {
	c.units, c.object, c.payload, c.results = nil, nil, nil, nil
	if err := plan(c); err != nil {
		return false, err
	}
	now, later := c.destinations()
	c.delayed = len(later) > 0
	if err := c.planRivals(plan); err != nil {
		return false, err
	}
	if normal, err := c.wasNormal(ctx); err != nil || normal {
		return normal, err
	}
	c.own(now, later)
	if err := c.putHolds(ctx, now, later); err != nil {
		return false, err
	}
	rolls := c.rolls(now)
	if err := c.putObject(ctx, now, later, len(rolls) > 0); err != nil {
		return false, err
	}
	if len(later) > 0 {
		if err := c.putDelayed(ctx, later); errors.Is(err, errNormal) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	c.await(ctx, rolls)
	c.commit(ctx, now)
	if c.guard != nil && c.guard.voided.Load() {
		return true, c.follow(ctx)
	}
	c.Hub.Signal(c.topic.ID())
	return false, nil
}
