package produce

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// planMessages encodes messages: one batch for all that go to segments now, and one per visible and
// expiry time of the delayed, all in one object.
func (c *call) planMessages(req Request) error {
	c.results = make([]result, len(req.Messages))
	byClass := make(map[class][]int)
	recs := make([]batch.Record, len(req.Messages))
	for i := range req.Messages {
		m := &req.Messages[i]
		if i < len(req.Errors) && req.Errors[i] != nil {
			c.results[i].err = req.Errors[i]
			continue
		}
		cl, warnings, err := c.judge(m, &recs[i])
		if err != nil {
			c.results[i].err = at("messages", i, err)
			continue
		}
		c.accept(i, cl, warnings)
		if cl.visible == 0 {
			cl.expires = 0 // a batch for segments may mix expiries
		}
		byClass[cl] = append(byClass[cl], i)
	}
	classes := make([]class, 0, len(byClass))
	for cl := range byClass {
		classes = append(classes, cl)
	}
	slices.SortFunc(classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.visible, b.visible), cmp.Compare(a.expires, b.expires))
	})
	enc := batch.NewEncoder(batch.Options{})
	for _, cl := range classes {
		if err := c.encode(enc, recs, byClass[cl], cl); err != nil {
			return err
		}
	}
	return nil
}

// judge validates one message and fills in its record.
func (c *call) judge(m *Message, rec *batch.Record) (class, []Warning, error) {
	limit := c.topic.Topic.Config.MaxMessageBytes
	if n := int64(len(m.Body)); n > limit {
		return class{}, nil, queue.TooLarge("body", limit, n)
	}
	key := m.Key
	if len(key) == 0 {
		if k, ok := c.topic.Rule.Key(m.Body, m.Headers); ok {
			key = k
		}
	}
	if len(key) > queue.MaxKeyBytes {
		return class{}, nil, queue.TooLarge("key", queue.MaxKeyBytes, int64(len(key)))
	}
	headers, err := batch.MakeHeaders(m.Headers)
	if err != nil {
		return class{}, nil, err
	}
	if m.DedupID != "" {
		if err := queue.ValidateToken("dedup_id", m.DedupID, queue.MaxDedupIDBytes); err != nil {
			return class{}, nil, err
		}
	}
	if m.TTL < 0 || m.TTL > queue.MaxTTL {
		return class{}, nil, queue.Invalid("ttl", queue.MaxTTL.Seconds(), "must be from 0 to %s seconds", queue.Plain(queue.MaxTTL.Seconds()))
	}
	if m.Delay < 0 || m.Delay > queue.MaxMaxDelay {
		return class{}, nil, queue.Invalid("delay", queue.MaxMaxDelay.Seconds(), "must be from 0 to %s seconds", queue.Plain(queue.MaxMaxDelay.Seconds()))
	}
	cl, warnings, err := c.judgeTimes(m.Delay, m.HasDelay, m.TTL)
	if err != nil {
		return class{}, nil, err
	}
	if m.DedupID != "" {
		warnings = append(warnings, WarnDedupIgnored)
	}
	*rec = batch.Record{
		Slot: c.keylessSlot(), Key: key, Headers: headers, Body: m.Body,
		Delay: m.Delay, HasDelay: m.HasDelay, TTL: m.TTL, DedupID: []byte(m.DedupID),
	}
	if len(key) > 0 {
		rec.Slot = queue.SlotOf(key)
	}
	return cl, warnings, nil
}

// encode adds one batch of the given messages to the call's object.
func (c *call) encode(enc *batch.Encoder, recs []batch.Record, members []int, cl class) error {
	enc.Reset()
	added := members[:0:0]
	for _, i := range members {
		if err := enc.Add(&recs[i]); err != nil {
			c.results[i].err = at("messages", i, err)
			continue
		}
		added = append(added, i)
	}
	if len(added) == 0 {
		return nil
	}
	pos := len(c.object)
	data, err := enc.Finish(slices.Grow(c.object, int(enc.SizeBound())), c.unitID(len(c.units)))
	if err != nil {
		return err
	}
	c.object = data
	h, err := batch.ParseHeader(data[pos:])
	if err != nil {
		return err
	}
	records := make([]record, len(added))
	for n, k := range enc.Order() {
		i := added[k]
		records[n] = record{
			slot: recs[i].Slot, size: int64(len(recs[i].Body)), pos: i,
			visible: cl.visible, expires: c.results[i].expires,
		}
	}
	c.batchUnit(h, int64(pos), records, true)
	return nil
}

// planBatch takes an encoded batch as it came. Where the topic takes keys out of bodies or the batch
// has records without the key that its rule would give, the messages are taken one by one.
func (c *call) planBatch(data []byte) error {
	if err := batch.Verify(data); err != nil {
		return queue.Invalid("body", nil, "is not a batch of docs/FORMAT.md: %v", err)
	}
	idx, err := batch.OpenIndex(data)
	if err != nil {
		return queue.Invalid("body", nil, "is not a batch of docs/FORMAT.md: %v", err)
	}
	if c.topic.Rule.Set() && anyKeyless(idx) {
		return c.planDecoded(data)
	}
	c.results = make([]result, idx.Count())
	c.object = data
	c.batchUnit(idx.Header(), 0, c.indexed(idx, "messages", 0, c.topic.Topic.Config.MaxMessageBytes), true)
	return nil
}

func anyKeyless(idx *batch.Index) bool {
	for _, e := range idx.Entries() {
		if len(e.Key) == 0 {
			return true
		}
	}
	return false
}

// indexed judges the records of a batch by its index alone. base is the place of the first among the
// call's messages.
func (c *call) indexed(idx *batch.Index, field string, base int, maxBody int64) []record {
	records := make([]record, idx.Count())
	for i, e := range idx.Entries() {
		pos := base + i
		records[i] = record{slot: e.Slot, size: e.BodyLen, pos: pos}
		cl, warnings, err := c.judgeTimes(e.Delay, e.HasDelay, e.TTL)
		switch {
		case err != nil:
		case e.BodyLen > maxBody:
			err = queue.TooLarge("body", maxBody, e.BodyLen)
		case len(e.Key) > 0 && e.Slot != queue.SlotOf(e.Key):
			err = queue.Invalid("slot", nil, "is not the hash of the record's key")
		case e.CreatedDelta != 0:
			err = queue.Invalid("created_delta", 0, "may be set by the compactor only")
		}
		if err != nil {
			c.results[pos].err = at(field, i, err)
			continue
		}
		if len(e.DedupID) > 0 {
			warnings = append(warnings, WarnDedupIgnored)
		}
		records[i].visible, records[i].expires = cl.visible, cl.expires
		c.accept(pos, cl, warnings)
	}
	return records
}

// planDecoded takes the records of a batch as single messages.
func (c *call) planDecoded(data []byte) error {
	r, err := batch.Open(data)
	if err != nil {
		return err
	}
	req := Request{Messages: make([]Message, 0, r.Index().Count())}
	var rec batch.Record
	for r.Next(&rec) {
		req.Messages = append(req.Messages, Message{
			Key: rec.Key, Body: slices.Clone(rec.Body), Headers: rec.Headers.Map(),
			Delay: rec.Delay, HasDelay: rec.HasDelay, TTL: rec.TTL, DedupID: string(rec.DedupID),
		})
	}
	if err := r.Err(); err != nil {
		return err
	}
	return c.planMessages(req)
}

// at puts an entry's place before the field that its error names.
func at(list string, i int, err error) error {
	var e *queue.Error
	if !asError(err, &e) || e.Field == "" {
		return err
	}
	moved := *e
	moved.Field = list + "[" + strconv.Itoa(i) + "]." + e.Field
	return &moved
}
