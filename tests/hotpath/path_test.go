package hotpath

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// path is one kind of call. make prepares it on a rig; what it gives is made again and again.
type path struct {
	name     string
	segments int
	make     func(testing.TB, *rig) steps
}

// steps are one round: only call is measured. before and after may be nil.
type steps struct {
	before, call, after func()
}

func paths() []path {
	return []path{
		{"produce-one", 1, producesJSON(1, "text", false)},
		{"produce-100", 1, producesJSON(many, "text", false)},
		{"produce-100-base64", 1, producesJSON(many, "base64", false)},
		{"produce-100-keyed", 4, producesJSON(many, "text", true)},
		{"produce-batch", 1, producesBatch},
		{"produce-batch-keyed", 4, producesBatch},
		{"claim-100", 1, claimsJSON},
		{"claim-100-binary", 1, claimsBinary},
		{"ack-100", 1, acks},
		{"service-produce-one", 1, serviceProduces(1)},
		{"service-produce-100", 1, serviceProduces(many)},
		{"service-produce-guarded", 1, serviceProducesGuarded},
		{"service-claim-100", 1, serviceClaims},
		{"service-ack-100", 1, serviceAcks},
	}
}

func producesJSON(n int, form string, keys bool) func(testing.TB, *rig) steps {
	return func(tb testing.TB, r *rig) steps {
		c := r.request(tb, "POST", messages, jsonBody(tb, n, form, keys), "Content-Type", wire.MediaTypeJSON)
		return steps{call: func() { r.must(tb, c) }}
	}
}

func producesBatch(tb testing.TB, r *rig) steps {
	c := r.request(tb, "POST", messages, r.encoded(tb, many), "Content-Type", wire.MediaTypeBatch)
	return steps{call: func() { r.must(tb, c) }}
}

func claimOf(tb testing.TB, r *rig, headers ...string) *call {
	return r.request(tb, "POST", billing+"/claims", fmt.Appendf(nil, `{"max_messages":%d}`, many), headers...)
}

// ackAll settles what was claimed, so that the next claim finds the same.
func (r *rig) ackAll(tb testing.TB, receipts []queue.Receipt) {
	errs, err := r.system.Consume.Ack(tb.Context(), "orders", "billing", receipts)
	if err != nil {
		tb.Fatal(err)
	}
	for _, err := range errs {
		if err != nil {
			tb.Fatal(err)
		}
	}
}

func claimsJSON(tb testing.TB, r *rig) steps {
	out := claimOf(tb, r)
	return steps{before: producesBatch(tb, r).call, call: func() { r.must(tb, out) }, after: func() {
		receipts := make([]queue.Receipt, 0, many)
		for _, text := range r.receipts(tb) {
			receipt, err := queue.ParseReceipt(text)
			if err != nil {
				tb.Fatal(err)
			}
			receipts = append(receipts, receipt)
		}
		r.ackAll(tb, receipts)
	}}
}

func claimsBinary(tb testing.TB, r *rig) steps {
	out := claimOf(tb, r, "Accept", wire.MediaTypeBatch)
	return steps{before: producesBatch(tb, r).call, call: func() { r.must(tb, out) }, after: func() {
		frame, err := wire.NewFrameReader(&r.out.body).Next()
		if err != nil || frame.Count != many {
			tb.Fatal(err, frame)
		}
		r.ackAll(tb, []queue.Receipt{frame.Receipt()})
	}}
}

func acks(tb testing.TB, r *rig) steps {
	in, out := producesBatch(tb, r).call, claimOf(tb, r)
	var ack *call
	return steps{
		before: func() {
			in()
			r.must(tb, out)
			body, err := json.Marshal(wire.ReceiptsRequest{Receipts: r.receipts(tb)})
			if err != nil {
				tb.Fatal(err)
			}
			ack = r.request(tb, "POST", billing+"/ack", body)
		},
		call: func() { r.must(tb, ack) },
	}
}

func serviceProduces(n int) func(testing.TB, *rig) steps {
	return func(tb testing.TB, r *rig) steps {
		req := produce.Request{Topic: "orders", Messages: make([]produce.Message, n)}
		for i := range req.Messages {
			req.Messages[i].Body = []byte(body(i))
		}
		return steps{call: func() {
			answer, err := r.system.Produce.Produce(tb.Context(), req)
			if err != nil || answer.Runs[0].Err != nil {
				tb.Fatal(err, answer)
			}
		}}
	}
}

// claimed makes a claim through the use case.
func (r *rig) claimed(tb testing.TB) consume.Claimed {
	got, err := r.system.Consume.Claim(tb.Context(), consume.ClaimRequest{Topic: "orders", Subscription: "billing", MaxMessages: many})
	if err != nil || len(got.Deliveries) != 1 || got.Deliveries[0].Count != many {
		tb.Fatal(err, len(got.Deliveries))
	}
	return got
}

func receiptOf(d *consume.Delivery) queue.Receipt {
	return queue.Receipt{Segment: d.Segment, Claim: d.Claim, Lo: d.Offset, Hi: d.Offset + queue.Offset(d.Count)}
}

func serviceClaims(tb testing.TB, r *rig) steps {
	var got consume.Claimed
	return steps{
		before: producesBatch(tb, r).call,
		call:   func() { got = r.claimed(tb) },
		after:  func() { r.ackAll(tb, []queue.Receipt{receiptOf(&got.Deliveries[0])}) },
	}
}

func serviceAcks(tb testing.TB, r *rig) steps {
	in := producesBatch(tb, r).call
	receipts := make([]queue.Receipt, many)
	return steps{
		before: func() {
			in()
			all := receiptOf(&r.claimed(tb).Deliveries[0])
			for i := range receipts {
				receipts[i] = all
				receipts[i].Lo += queue.Offset(i) // #nosec G115 -- small
				receipts[i].Hi = receipts[i].Lo + 1
			}
		},
		call: func() { r.ackAll(tb, receipts) },
	}
}

// serviceProducesGuarded is service-produce-one of a producer with sequences, beside 63 others that the
// head remembers: as a client's Producer makes it.
func serviceProducesGuarded(tb testing.TB, r *rig) steps {
	reqs := make([]produce.Request, 64)
	for i := range reqs {
		reqs[i] = produce.Request{
			Topic: "orders", Messages: []produce.Message{{Body: []byte(body(i))}},
			Guard: produce.Guard{ProducerID: fmt.Sprintf("producer-%d", i)},
		}
	}
	n := 0
	return steps{call: func() {
		req := &reqs[n%len(reqs)]
		n++
		req.Guard.Sequence++
		answer, err := r.system.Produce.Produce(tb.Context(), *req)
		if err != nil || answer.Runs[0].Err != nil {
			tb.Fatal(err, answer)
		}
	}}
}
