package latency

import (
	"math/rand/v2"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
)

// Kind is a kind of request that has a figure of its own.
type Kind uint8

// The kinds: Read to TransactMany are DynamoDB's, as TableFigures has them, Get and Put are S3's.
const (
	Read Kind = iota
	Many
	Write
	Transact
	TransactMany
	Get
	Put

	kinds
)

var kindNames = [kinds]string{"read", "many", "write", "transact", "transact many", "get", "put"} //checks:state it is never changed

// String is the kind's name.
func (k Kind) String() string { return kindNames[k] }

// Curves are the distributions of all kinds.
type Curves [kinds]Curve

// NewCurves are those through the figures of a table and of a bucket.
func NewCurves(t *TableFigures, b *BucketFigures) *Curves {
	return &Curves{
		Read: t.Read.Curve(), Many: t.Many.Curve(), Write: t.Write.Curve(),
		Transact: t.Transact.Curve(), TransactMany: t.TransactMany.Curve(),
		Get: b.Get.Curve(), Put: b.Put.Curve(),
	}
}

// Draw takes one duration of a kind.
func (c *Curves) Draw(k Kind, rng *rand.Rand) time.Duration { return c[k].Draw(rng) }

// OfApply are the requests that the driver makes for an op alone, one after another: a payload is put before
// its append, what a Trim cuts is read before, unless its caller has seen it.
func OfApply(op meta.Op) []Kind {
	switch o := op.(type) {
	case meta.Append:
		if o.Payload != nil {
			return []Kind{Write, Write}
		}
	case meta.Trim:
		if o.Seen == nil {
			return []Kind{Read, Write}
		}
	}
	return []Kind{Write}
}

// OfTransact are those that it makes for a transaction: what goes by what a record holds is read before, and what
// was appended to is read after. At is the place of the transaction itself among them.
func OfTransact(ops []meta.Op) (all []Kind, at int) {
	after := 0
	for _, op := range ops {
		switch op := op.(type) {
		case meta.Trim:
			if op.Seen == nil {
				all = append(all, Read)
			}
		case meta.Touch, meta.Take, meta.Settle:
			all = append(all, Read)
		case meta.Append, meta.Seal, meta.Void:
			after++
		}
	}
	at = len(all)
	if len(ops) <= fewOps {
		all = append(all, Transact)
	} else {
		all = append(all, TransactMany)
	}
	for range after {
		all = append(all, Read)
	}
	return all, at
}
