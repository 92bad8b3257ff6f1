package sim

import (
	"context"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// watched tells the model of every change of the truth, as a change of states, not as what was asked
// for: so it sees through the mutations above it.
type watched struct {
	meta.Store
	model *model
}

// change is a record before and after; nil for absent.
type change struct {
	key           meta.Key
	before, after meta.Record
}

func (s *watched) read(key meta.Key) meta.Record {
	item, err := s.Get(context.Background(), key)
	if err != nil {
		return nil
	}
	return item.Record
}

// Apply implements meta.Store.
func (s *watched) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	before := s.read(op.Target())
	res, err := s.Store.Apply(ctx, op)
	if err == nil {
		s.model.changed([]change{{op.Target(), before, s.read(op.Target())}})
	}
	return res, err
}

// Transact implements meta.Store.
func (s *watched) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	changes := make([]change, len(ops))
	for i, op := range ops {
		changes[i] = change{key: op.Target(), before: s.read(op.Target())}
	}
	res, err := s.Store.Transact(ctx, ops)
	if err == nil {
		for i := range changes {
			changes[i].after = s.read(changes[i].key)
		}
		s.model.changed(changes)
	}
	return res, err
}

// cause says whose request changes the truth.
type cause struct {
	label string
	inst  *instance
	late  bool
	// op is what was asked for, if it was one op.
	op meta.Op
}

// letter is one message that a client gave away, and what is known of it.
type letter struct {
	uid  string
	call *produceCall
	pos  int
	// topic is the id of the topic that a state below is of.
	states map[queue.TopicID]*state
	// edit is the newest edit that was acknowledged, 0 for none.
	edit int
}

// state is where a message is in one topic.
type state struct {
	waiting   bool
	entry     queue.EntryID
	placed    bool
	at        queue.MessageID
	cancelled bool
	expired   bool
	// removed: it went with its topic.
	removed bool
}

func (s *state) over() bool { return s.placed || s.cancelled || s.expired || s.removed }

// segmentLog is what a segment holds, message by message.
type segmentLog struct {
	id    queue.SegmentID
	topic queue.TopicID
	msgs  []logged
	refs  []placedRef
	// removed: its topic was deleted and the compactor takes it away.
	removed bool
}

type placedRef struct {
	ref meta.Ref
	off queue.Offset
}

type logged struct {
	uid     string
	edit    int
	visible queue.Millis
	expires queue.Millis
	key     string
	letter  bool // it came as a dead letter
}

// made is how a claim came to be.
type made struct {
	cursor meta.Key
	at     queue.Millis
}

// model is what must be so. It is only ever used by the scheduler.
type model struct {
	w     *world
	cause cause

	letters map[string]*letter
	logs    map[queue.SegmentID]*segmentLog
	order   []queue.SegmentID
	topics  map[queue.TopicID]*meta.Topic
	subs    map[queue.SubscriptionID]*meta.Subscription
	// claims is which cursor a claim was made in, and when by its maker's clock.
	claims map[queue.ClaimID]made
	// acked is what clients asked to be done, by claim.
	acked map[queue.ClaimID]map[queue.Offset]bool
	// lastAppend is the head's before the append under judgement.
	lastAppend queue.Millis
	// given is what went to dead-letter topics, by cursor.
	given map[meta.Key]map[queue.Offset]bool
	reclaim
	lineage
}

func newModel(w *world) *model {
	return &model{
		w: w, letters: make(map[string]*letter), logs: make(map[queue.SegmentID]*segmentLog),
		topics: make(map[queue.TopicID]*meta.Topic), subs: make(map[queue.SubscriptionID]*meta.Subscription),
		claims: make(map[queue.ClaimID]made), acked: make(map[queue.ClaimID]map[queue.Offset]bool),
		given: make(map[meta.Key]map[queue.Offset]bool), reclaim: newReclaim(), lineage: newLineage(),
	}
}

// Helper implements memblob.Reporter.
func (m *model) Helper() {}

// Errorf hears of what the memory stores find wrong.
func (m *model) Errorf(format string, args ...any) { m.w.find("store rules", format, args...) }

func (m *model) state(uid string, topic queue.TopicID) *state {
	l := m.letters[uid]
	if l == nil {
		m.w.find("content", "a message %q that nobody sent", uid)
		l = &letter{uid: uid, states: make(map[queue.TopicID]*state)}
		m.letters[uid] = l
	}
	s := l.states[topic]
	if s == nil {
		s = &state{}
		l.states[topic] = s
	}
	return s
}

// changed judges what one request did.
func (m *model) changed(all []change) {
	t := &txn{m: m, now: m.cause.inst.now()}
	for i := range all {
		c := &all[i]
		switch rec := present(c).(type) {
		case *meta.Head:
			t.head(c)
		case *meta.Cursor:
			t.cursors = append(t.cursors, c)
		case *meta.Delayed:
			t.entry(c)
		case *meta.RefPage:
			t.page(c)
		case *meta.Payload:
			if c.after == nil {
				m.deleted(rec.ID, true)
			}
		case *meta.Topic:
			if c.after != nil {
				m.topics[rec.ID] = rec
				m.noteState(rec)
			}
		case *meta.Segment:
			m.log(rec.ID).topic = rec.Topic
		case *meta.Subscription:
			if c.after != nil {
				m.subs[rec.ID] = rec
			}
		}
	}
	for _, c := range t.cursors {
		t.cursor(c)
	}
	t.shape(all)
	t.settle()
}

// log finds what a segment holds; a new one holds nothing.
func (m *model) log(id queue.SegmentID) *segmentLog {
	log := m.logs[id]
	if log == nil {
		log = &segmentLog{id: id}
		m.logs[id] = log
		m.order = append(m.order, id)
	}
	return log
}

func present(c *change) meta.Record {
	if c.after != nil {
		return c.after
	}
	return c.before
}

// read decodes the messages of a ref from the truth.
func (m *model) read(ref *meta.Ref) ([]logged, string) {
	data, what := m.bytes(ref)
	if what != "" {
		return nil, what
	}
	if ref.Kind == meta.RefPayload {
		uid, edit := uidOf(data)
		return []logged{{uid: uid, edit: edit, visible: ref.VisibleAt(), expires: ref.MinExpires, key: string(ref.Key)}}, ""
	}
	r, err := batch.Open(data)
	if err != nil {
		return nil, "its batch is damaged: " + err.Error()
	}
	if err := r.Seek(int(ref.First), int(ref.Count)); err != nil {
		return nil, "its run is not in its batch: " + err.Error()
	}
	var out []logged
	var rec batch.Record
	for r.Next(&rec) {
		uid, edit := uidOf(rec.Body)
		out = append(out, logged{uid: uid, edit: edit, visible: ref.VisibleAt(), expires: expiryOf(ref, &rec), key: string(rec.Key)})
	}
	if r.Err() != nil {
		return nil, "its batch is damaged: " + r.Err().Error()
	}
	return out, ""
}

func (m *model) bytes(ref *meta.Ref) ([]byte, string) {
	ctx := context.Background()
	if !ref.Inline {
		data, err := m.w.bodies.Get(ctx, ref.Object, blob.Span{Pos: ref.Pos, Len: ref.Len}, nil)
		if err != nil {
			return nil, "its object is not there: " + err.Error()
		}
		return data, ""
	}
	p, _, err := meta.Fetch[*meta.Payload](ctx, m.w.truth, meta.PayloadKey(ref.Object))
	if err != nil {
		return nil, "its payload is not there: " + err.Error()
	}
	if ref.Pos+ref.Len > int64(len(p.Data)) {
		return nil, "its payload is too short"
	}
	return slices.Clone(p.Data[ref.Pos : ref.Pos+ref.Len]), ""
}

// expiryOf is the rule of docs/FORMAT.md, said again here so that the code's own is checked by it.
func expiryOf(ref *meta.Ref, rec *batch.Record) queue.Millis {
	switch {
	case ref.MinExpires == ref.MaxExpires:
		return ref.MinExpires
	case rec.TTL > 0:
		return ref.Created.Add(rec.CreatedDelta + rec.TTL)
	case ref.DefaultTTL > 0:
		return ref.Created.Add(rec.CreatedDelta) + queue.Millis(ref.DefaultTTL)
	}
	return 0
}

// uidOf reads the id, and the number of the edit, that a body begins with: "m12.3~4|...".
func uidOf(body []byte) (string, int) {
	head, _, _ := strings.Cut(string(body), "|")
	uid, edit, _ := strings.Cut(head, "~")
	n := 0
	for _, c := range edit {
		n = 10*n + int(c-'0')
	}
	return uid, n
}
