package produce

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// progress is what the attempt record of a guarded call notes of more entries than one transaction
// takes: how many of them are put, in the order of the parts. The entries themselves need no note, as
// their ids and times follow from the call's nonce and time. Digest tells the call's parts from those
// of another call under the same sequence.
type progress struct {
	Put    int    `json:"put"`
	Of     int    `json:"of"`
	Digest string `json:"digest"`
}

// putMany puts the entries of parts in several transactions. Each puts its entries and the note of how
// far the call has come, so that the next try goes on from there, whatever became of this one, and
// puts none twice. Between two of them the first messages can be visible already: a call is not
// atomic in what others see of it, on delayed topics as little as over segments.
func (g *guarded) putMany(ctx context.Context, c *call, parts []part) error {
	p := progress{Of: len(parts), Digest: c.digest(parts)}
	if len(g.attempt.Delayed) > 0 && !p.goOn(g.attempt.Delayed) {
		c.refuse(parts, usedBefore(c.topic.Name))
		return nil
	}
	for i := range p.Put {
		c.entry(i, parts[i]) // for the ids
	}
	for began := p.Put > 0; p.Put < p.Of; began = true {
		var entries []meta.Op
		room, err := c.room()
		if err != nil {
			return err // with nothing put: nothing is voided after the first
		}
		for i := p.Put; i < min(p.Put+room, p.Of); i++ {
			entries = append(entries, c.entry(i, parts[i]))
		}
		p.Put += len(entries)
		note, err := json.Marshal(p)
		if err != nil {
			return &queue.Error{Op: "produce", Subject: c.topic.Name, Kind: queue.KindInternal, Err: err}
		}
		if err := g.putNoted(ctx, c, note, entries); err != nil {
			if began && queue.Retryable(err) {
				// Nobody may be told that nothing was changed.
				err = &queue.Error{
					Op: "produce", Subject: c.topic.Name, Kind: queue.KindOutcomeUnknown, Err: err,
					Message: "a part of the messages is in; a retry under the same guard puts the rest",
				}
			}
			return err
		}
	}
	return nil
}

// goOn takes over how far an earlier try came; false if its note is of other messages.
func (p *progress) goOn(note []byte) bool {
	var last progress
	err := json.Unmarshal(note, &last)
	if err != nil || last.Of != p.Of || last.Digest != p.Digest || last.Put > p.Of {
		return false
	}
	p.Put = last.Put
	return true
}

// inSteps reports whether the call's entries have been put in several transactions, or a part of them.
func (g *guarded) inSteps() bool {
	return g.attempt != nil && len(g.attempt.Delayed) > 0 && g.attempt.Delayed[0] == '{'
}

// digest sums up which messages the parts hold, and their times within the call.
func (c *call) digest(parts []part) string {
	h := sha256.New()
	var b []byte
	for _, p := range parts {
		for _, rec := range p.records() {
			b = binary.AppendUvarint(b[:0], uint64(rec.pos)) // #nosec G115 -- an index
			b = binary.AppendUvarint(b, uint64(rec.slot))
			b = binary.AppendVarint(b, rec.size)
			b = binary.AppendVarint(b, int64(rec.visible-c.created))
			b = binary.AppendVarint(b, int64(max(rec.expires, c.created)-c.created))
			h.Write(b)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func usedBefore(topic string) error {
	return &queue.Error{
		Op: "produce", Subject: topic, Kind: queue.KindConflict, Code: queue.CodeSequenceOutOfOrder,
		Field: "producer.sequence", Message: "the sequence was used for other messages before",
	}
}
