package sim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
)

type guardKind uint8

const (
	unguarded guardKind = iota
	bySequence
	byKey
)

// producer is a client that makes one produce call after another.
type producer struct {
	id    string
	topic *topicSpec
	guard guardKind
	seq   uint64
	busy  bool
	// call is to be tried again; nil if the last one came to an end.
	call *produceCall
	// last is where its last acknowledged message of each topic and key is.
	last map[string]queue.MessageID
}

type formKind uint8

const (
	asMessages formKind = iota
	asBatch
	asPayloads
	asBatchFile
)

// produceCall is one call with all its tries.
type produceCall struct {
	p        *producer
	number   int
	began    time.Time
	form     formKind
	messages []produce.Message
	guard    produce.Guard
	data     []byte // the encoded batch
	objects  []string
	tries    int
	// open is the number of tries that have no outcome yet.
	open int
	// fate is what is known of each message, places where those are that were acknowledged in a segment.
	fate   []fate
	places map[int]queue.MessageID
	// recorded is nil unless the run is.
	recorded *history.Pending[history.Produce]
}

// fate says of a message of a call what its tries were answered.
type fate struct {
	uid              string
	acked, uncertain bool
}

// refusedFor reports whether all tries are over and each refused the message, so that it must not be
// there.
func (c *produceCall) refusedFor(pos int) bool {
	f := c.fate[pos]
	return c.tries > 0 && c.open == 0 && !f.acked && !f.uncertain
}

func (l *workload) produce() bool {
	p := pick(l, l.producers)
	if p.busy {
		return false
	}
	// A client that tries again later than the guard is remembered would make a new call.
	if p.call == nil || p.call.tries > 6 || time.Since(p.call.began) > queue.IdempotencyWindow/2 {
		p.call = l.newCall(p)
	}
	p.busy = true
	l.try(p.call)
	return true
}

func (l *workload) newCall(p *producer) *produceCall {
	rng := l.w.rng
	l.calls++
	c := &produceCall{p: p, number: l.calls, began: time.Now(), places: make(map[int]queue.MessageID)}
	n := 1
	if rng.IntN(2) == 0 {
		n = 1 + rng.IntN(12)
	}
	pad := 0
	if rng.IntN(8) == 0 {
		pad = 9000 / n
	}
	c.form = []formKind{asMessages, asMessages, asMessages, asBatch, asPayloads, asBatchFile}[rng.IntN(6)]
	if c.form == asPayloads {
		n = min(n, 4)
	}
	for i := range n {
		uid := fmt.Sprintf("m%d.%d", c.number, i)
		m := produce.Message{Body: []byte(uid + "|" + strings.Repeat("x", pad+rng.IntN(20)))}
		if rng.IntN(3) > 0 {
			m.Key = []byte{byte('a' + rng.IntN(6))} // #nosec G115 -- small
		}
		if rng.IntN(4) == 0 {
			m.HasDelay, m.Delay = true, time.Duration(rng.IntN(4)*rng.IntN(12))*time.Second
		}
		if rng.IntN(6) == 0 {
			m.TTL = time.Duration(1+rng.IntN(40)) * time.Second
		}
		if rng.IntN(6) == 0 {
			m.Headers = map[string]string{"h": uid}
		}
		c.messages = append(c.messages, m)
	}
	l.guard(c)
	if c.form == asBatch || c.form == asBatchFile {
		l.encode(c)
	}
	for i, m := range c.messages {
		uid, _ := uidOf(m.Body)
		c.fate = append(c.fate, fate{uid: uid})
		l.w.model.letters[uid] = &letter{uid: uid, call: c, pos: i, states: make(map[queue.TopicID]*state)}
	}
	l.w.rec.call(c)
	return c
}

func (l *workload) guard(c *produceCall) {
	switch p := c.p; p.guard {
	case bySequence:
		p.seq++
		c.guard = produce.Guard{ProducerID: p.id, Sequence: p.seq}
	case byKey:
		sum := sha256.Sum256(c.messages[0].Body)
		c.guard = produce.Guard{IdempotencyKey: fmt.Sprintf("%s-%d", p.id, c.number), BodyHash: hex.EncodeToString(sum[:])}
	case unguarded:
	}
}

// encode makes the call's batch; its messages are then in the order of the batch, as answers are.
func (l *workload) encode(c *produceCall) {
	enc := batch.NewEncoder(batch.Options{Codec: batch.Codec(l.w.rng.IntN(2))}) // #nosec G115 -- below 2
	nonce := [16]byte{}
	for i := range nonce {
		nonce[i] = byte(l.w.rng.IntN(256)) // #nosec G115 -- a byte
	}
	keyless := queue.SlotOf(nonce[:])
	for i := range c.messages {
		m := &c.messages[i]
		headers, _ := batch.MakeHeaders(m.Headers) // well formed
		rec := &batch.Record{Slot: keyless, Key: m.Key, Headers: headers, Body: m.Body, Delay: m.Delay, HasDelay: m.HasDelay, TTL: m.TTL}
		if len(m.Key) > 0 {
			rec.Slot = queue.SlotOf(m.Key)
		}
		if err := enc.Add(rec); err != nil {
			l.w.find("simulator", "a record of our own is refused: %v", err)
		}
	}
	data, err := enc.Finish(nil, nonce)
	if err != nil {
		l.w.find("simulator", "a batch of our own is refused: %v", err)
	}
	c.data = data
	sorted := make([]produce.Message, len(c.messages))
	for i, k := range enc.Order() {
		sorted[i] = c.messages[k]
	}
	c.messages = sorted
}

// try makes one try of a call, as a good client does: the same call again, under the same guard.
func (l *workload) try(c *produceCall) {
	c.tries++
	c.open++
	inst := l.instance()
	var answer produce.Answer
	var err error
	topic := c.p.topic.name
	what := fmt.Sprintf("produce %s to %s: call %d, %d messages, form %d, guard %d", c.p.id, topic, c.number, len(c.messages), c.form, c.p.guard)
	l.w.begin(inst, what, func(ctx context.Context) {
		switch c.form {
		case asMessages:
			answer, err = inst.system.Produce.Produce(ctx, produce.Request{Topic: topic, Messages: c.messages, Guard: c.guard})
		case asBatch:
			answer, err = inst.system.Produce.ProduceBatch(ctx, produce.BatchRequest{Topic: topic, Data: bytes.Clone(c.data), Guard: c.guard})
		default:
			answer, err = l.submit(ctx, inst, c)
		}
	}, func(o *op) {
		c.p.busy = false
		c.open--
		l.judge(o, c, answer, err)
	})
}

// submit uploads the call's objects, once, and submits references to them.
func (l *workload) submit(ctx context.Context, inst *instance, c *produceCall) (produce.Answer, error) {
	var bodies [][]byte
	if c.form == asBatchFile {
		bodies = [][]byte{c.data}
	} else {
		for i := range c.messages {
			bodies = append(bodies, c.messages[i].Body)
		}
	}
	if c.objects == nil {
		terms := make([]blob.Terms, len(bodies))
		for i, b := range bodies {
			terms[i] = blob.Terms{Size: int64(len(b))}
		}
		places, err := inst.system.Produce.Uploads(ctx, c.p.topic.name, terms)
		if err != nil {
			return produce.Answer{}, err
		}
		objects := make([]string, len(places))
		client := &blobNet{l.w.net, l.w.clients}
		for i := range places {
			objects[i] = places[i].Object
			if _, err := client.Put(ctx, objects[i], bytes.NewReader(bodies[i]), terms[i]); err != nil {
				return produce.Answer{}, &queue.Error{Op: "upload", Kind: queue.KindUnavailable, Err: err}
			}
		}
		c.objects = objects
	}
	req := produce.ReferencesRequest{Topic: c.p.topic.name, Guard: c.guard}
	for i, object := range c.objects {
		ref := produce.Reference{Object: object, Batch: c.form == asBatchFile}
		if !ref.Batch {
			m := &c.messages[i]
			ref.Key, ref.Headers, ref.Delay, ref.HasDelay, ref.TTL = m.Key, m.Headers, m.Delay, m.HasDelay, m.TTL
		}
		req.References = append(req.References, ref)
	}
	return inst.system.Produce.References(ctx, req)
}

// judge holds an answer against the truth and decides what the client does next.
func (l *workload) judge(o *op, c *produceCall, answer produce.Answer, err error) {
	again := false
	settle := func(pos int, err error) {
		f := &c.fate[pos]
		switch {
		case err == nil:
			f.acked = true
		case uncertain(err):
			f.uncertain = true
		}
		again = again || err != nil && retryable(err)
	}
	if o.killed {
		err = &queue.Error{Op: "call", Kind: queue.KindOutcomeUnknown}
	}
	if err != nil {
		l.said(o, err)
		l.unhurt(o, err)
		for i := range c.fate {
			settle(i, err)
		}
	} else {
		o.said = l.judgeRuns(o, c, answer, settle)
	}
	if c.form == asBatchFile && err == nil && len(answer.Runs) == 1 && answer.Runs[0].Count < len(c.fate) {
		for i := range c.fate {
			settle(i, answer.Runs[0].Err)
		}
	}
	// What came before must not be there, now that it is known to be refused.
	for i := range c.fate {
		if l.w.model.there(c.fate[i].uid) && c.refusedFor(i) {
			l.w.find("refused", "%s is there, and %s was answered that it was refused", c.fate[i].uid, o.label)
		}
	}
	over := !again || c.p.guard == unguarded
	if over {
		c.p.call = nil
	}
	l.w.rec.tried(c, over)
}

// there reports whether a message is, or was, in any topic.
func (m *model) there(uid string) bool {
	for _, s := range m.letters[uid].states {
		if s.waiting || s.over() {
			return true
		}
	}
	return false
}

func uncertain(err error) bool {
	switch queue.KindOf(err) {
	case queue.KindOutcomeUnknown, queue.KindCanceled, queue.KindInternal:
		return true
	}
	return false
}

func retryable(err error) bool { return uncertain(err) || queue.Retryable(err) }

func (l *workload) judgeRuns(o *op, c *produceCall, answer produce.Answer, settle func(int, error)) string {
	covered := 0
	var said []string
	for i := range answer.Runs {
		run := &answer.Runs[i]
		if run.First != covered {
			l.w.find("answer", "%s: the answer's runs do not cover the call: %+v", o.label, answer.Runs)
			return "bad answer"
		}
		covered += run.Count
		for j := range run.Count {
			settle(run.First+j, run.Err)
			if run.Err == nil {
				l.acknowledged(o, c, run, j)
			}
		}
		switch {
		case run.Err != nil:
			l.unhurt(o, run.Err)
			said = append(said, short(run.Err.Error()))
			if k := queue.KindOf(run.Err); k == queue.KindInternal || k == queue.KindCorrupt {
				l.w.find("errors", "%s fails with %v", o.label, run.Err)
			}
		case run.Delayed != nil:
			said = append(said, fmt.Sprintf("%d wait as %s", run.Count, run.Delayed))
		default:
			said = append(said, fmt.Sprintf("%d at %s", run.Count, run.ID))
		}
	}
	// A batch file that is refused as a whole is one entry of the answer.
	if covered != len(c.messages) && (c.form != asBatchFile || covered != 1 || answer.Runs[0].Err == nil) {
		l.w.find("answer", "%s: the answer covers %d of %d messages", o.label, covered, len(c.messages))
	}
	return strings.Join(said, ", ")
}

// acknowledged holds one acknowledged message against the truth.
func (l *workload) acknowledged(o *op, c *produceCall, run *produce.Run, j int) {
	uid := c.fate[run.First+j].uid
	if run.Delayed != nil {
		id := *run.Delayed
		id.Index += uint32(j) // #nosec G115 -- small
		if !l.w.model.there(uid) {
			l.w.find("acknowledged", "%s: %s waits nowhere as %s", o.label, uid, id)
		}
		l.waiting = append(l.waiting, &waitingLetter{topic: c.p.topic.name, id: id, uid: uid})
		return
	}
	at := queue.MessageID{Segment: run.ID.Segment, Offset: run.ID.Offset + queue.Offset(j)} // #nosec G115 -- small
	c.places[run.First+j] = at
	log := l.w.model.logs[at.Segment]
	if log == nil || int(at.Offset) >= len(log.msgs) || log.msgs[at.Offset].uid != uid {
		l.w.find(l.rule(c, "acknowledged"), "%s: %s is not at %s", o.label, uid, at)
		return
	}
	key := string(log.topic) + "/" + string(c.messages[run.First+j].Key)
	if len(c.messages[run.First+j].Key) == 0 {
		return
	}
	if last, ok := c.p.last[key]; ok && last != at && !l.w.model.follows(at, last) {
		if prev := l.w.model.logs[last.Segment].msgs[last.Offset]; !prev.letter && l.w.model.letters[prev.uid].call != c {
			l.w.find("order", "%s: %s at %s comes before an older message of its key and producer at %s", o.label, uid, at, last)
		}
	}
	if last, ok := c.p.last[key]; !ok || l.w.model.follows(at, last) {
		c.p.last[key] = at
	}
}

// rule is ruleSwitched for a call whose topic's config was changed: its answers may be wrong, too.
func (l *workload) rule(c *produceCall, rule string) string {
	if l.switched[c.p.topic.name] && c.tries > 1 {
		return ruleSwitched
	}
	return rule
}
