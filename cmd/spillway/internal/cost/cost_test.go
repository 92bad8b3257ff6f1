package cost_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/cost"
	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/local"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const week = 7 * 24 * time.Hour

func workload(batch, size int) cost.Workload {
	return cost.Workload{Batch: batch, Size: size, Segments: 1, Groups: 1, Rate: 100, Keep: week}
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s: %.12g, want %.12g", what, got, want)
	}
}

func bill(t *testing.T, w cost.Workload) *cost.Bill {
	t.Helper()
	if err := w.Check(); err != nil {
		t.Fatal(err)
	}
	b, err := cost.Of(t.Context(), w, cost.USEast1())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func part(t *testing.T, b *cost.Bill, name string) cost.Part {
	t.Helper()
	for _, p := range b.Parts {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no part %q", name)
	return cost.Part{}
}

// TestByHand holds a bill against sums that were worked out by hand: one message of 1,000 bytes a call,
// without a producer's id, consumed once.
func TestByHand(t *testing.T) {
	b := bill(t, workload(1, 1000))
	// 1,500 refs fill a group of the compactor: 47 pages of 32.
	const calls = 47 * 32
	u := b.Usage
	for what, pair := range map[string][2]int64{
		"messages":      {u.Messages, calls},
		"produce calls": {u.Produce.Calls, calls},     // POST messages
		"consume calls": {u.Consume.Calls, 2 * calls}, // POST claims, POST ack
		"API units":     {u.Produce.APIUnits + u.Consume.APIUnits, 3 * calls},
		// A batch of one message of 1,000 bytes and its key are 1,113 bytes: 2 units.
		"payload units":        {u.Produce.Meter.Row("put payload").WriteUnits, 2 * calls},
		"payload read units":   {u.Consume.Meter.Row("get payload").ReadUnits, calls},
		"payload delete units": {u.Compact.Meter.Row("delete payload").WriteUnits, 2 * calls},
		"appends":              {u.Produce.Meter.Row("append").Ops, calls},
		"takes":                {u.Consume.Meter.Row("take").WriteUnits, calls},
		"settles":              {u.Consume.Meter.Row("settle").WriteUnits, calls},
		"rolls":                {u.Produce.Meter.Row("transact").Calls, calls / 32},
		// A page of 32 refs, and the head that it leaves, are of 2 to 3 KB: 3 units, twice in a transaction.
		"page units": {u.Produce.Meter.Row("put page").WriteUnits, 47 * 2 * 3},
		"trim units": {u.Produce.Meter.Row("trim").WriteUnits, 47 * 2 * 3},
		"trim reads": {u.Produce.Beside.Reads, 47},
		// An ack leaves two entries of litter and the driver folds past 16: every 7 acks.
		"folds": {u.Consume.Beside.Writes, calls / 7},
		"puts":  {u.Compact.Meter.Total().Puts, 1},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %d, want %d\n%s", what, pair[0], pair[1], u.Produce.Meter)
		}
	}
	near(t, "API", part(t, b, "API Gateway requests").Total, 3*1.00)
	near(t, "Lambda calls", part(t, b, "Lambda calls").Total, 3*0.20)
	near(t, "consume writes", part(t, b, "DynamoDB writes").Consume, (2+float64(calls/7)/calls)*0.625)
	near(t, "S3", part(t, b, "S3 puts").Total, 5.00/calls)
	near(t, "floor", b.Floor, 5.00+0.625)
	near(t, "a GB of messages of 1,000 bytes is a million of them", b.PerGB, b.PerMillion)
}

// TestObjectsByHand: ten of 1,000 bytes go to S3, one put and two gets, one of them the compactor's.
func TestObjectsByHand(t *testing.T) {
	b := bill(t, workload(10, 1000))
	u := b.Usage
	calls := u.Produce.Calls
	if got := u.Produce.Meter.Total().Puts; got != calls {
		t.Errorf("%d puts of %d calls", got, calls)
	}
	if u.Messages != 10*calls || u.Consume.Meter.Total().Gets != calls || u.Compact.Meter.Total().Gets != calls {
		t.Errorf("%d messages of %d calls:\n%s\n%s", u.Messages, calls, u.Consume.Meter, u.Compact.Meter)
	}
	near(t, "puts of produce", part(t, b, "S3 puts").Produce, 5.00/10)
	near(t, "gets of consume", part(t, b, "S3 gets").Consume, 0.40/10)
	near(t, "API", part(t, b, "API Gateway requests").Total, 3*1.00/10)
	near(t, "floor", b.Floor, 5.625/10)
}

// TestBillIsTheMeters: what is billed for the stores is what their meters priced, and what the drivers do
// beside.
func TestBillIsTheMeters(t *testing.T) {
	for _, w := range []cost.Workload{
		workload(1, 100), workload(7, 333),
		{Batch: 15, Size: 4000, Segments: 3, Keyed: true, Groups: 2, Claim: 9, Producers: 4, Delayed: 0.3, Rate: 2, Keep: week},
		{Batch: 20, Size: 50_000, Segments: 1, Groups: 1, Rate: 1000},
	} {
		b := bill(t, w)
		want := 0.0
		for _, f := range []cost.FunctionUsage{b.Usage.Produce, b.Usage.Consume, b.Usage.Compact} {
			want += f.Meter.Cost(meter.USEast1()).Total
			want += float64(f.Beside.WriteUnits)*0.625/1e6 + float64(f.Beside.ReadUnits)*0.125/1e6 + float64(f.Beside.Puts)*5/1e6
		}
		got, all := 0.0, 0.0
		for _, p := range b.Parts {
			all += p.Total
			if strings.HasPrefix(p.Name, "DynamoDB") || strings.HasPrefix(p.Name, "S3") {
				got += p.Total
			}
		}
		near(t, fmt.Sprintf("%+v", w), got, want/float64(b.Usage.Messages)*1e6)
		near(t, "the sum", all, b.PerMillion)
		if n := b.Usage.Messages; n == 0 || b.Usage.Consume.Meter.Ops("settle") == 0 {
			t.Errorf("%+v: nothing was consumed:\n%s", w, b.Usage.Consume.Meter)
		}
	}
}

// TestRunIsTheServers: a server that gets the same calls by HTTP asks the same of its stores.
func TestRunIsTheServers(t *testing.T) {
	const size, of, calls = 1000, 10, 64
	s, err := local.Start(t.Context(), local.Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	c, err := client.New(s.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CreateTopic(t.Context(), "t", client.TopicConfig{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateSubscription(t.Context(), "t", "s", client.SubscriptionConfig{}); err != nil {
		t.Fatal(err)
	}
	before := s.Meter()
	for i := range calls {
		enc := batch.NewEncoder(batch.Options{})
		for range of {
			if err := enc.Add(&batch.Record{Body: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
		}
		data, err := enc.Finish(nil, [batch.NonceSize]byte{byte(i + 1)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ProduceBatch(t.Context(), "t", data, client.Guard{}); err != nil {
			t.Fatal(err)
		}
		got, err := c.Claim(t.Context(), "t", "s", client.ClaimOptions{MaxMessages: of})
		if err != nil || len(got) != of {
			t.Fatal(len(got), err)
		}
		receipts := make([]client.Receipt, len(got))
		for j := range got {
			receipts[j] = got[j].Receipt
		}
		if _, err := c.Ack(t.Context(), "t", "s", receipts); err != nil {
			t.Fatal(err)
		}
	}
	server := s.Meter().Sub(before)
	u := bill(t, workload(of, size)).Usage
	for op, f := range map[string]cost.FunctionUsage{
		"append": u.Produce, "create object": u.Produce, "put payload": u.Produce, "trim": u.Produce, "put page": u.Produce,
		"take": u.Consume, "settle": u.Consume, "get head": u.Consume,
	} {
		got, want := float64(f.Meter.Ops(op))/float64(u.Produce.Calls), float64(server.Ops(op))/calls
		near(t, op+" a call", got, want)
	}
}

// TestRivals holds the rivals against sums by hand.
func TestRivals(t *testing.T) {
	price := cost.USEast1()
	perMonth := 100.0 * 730 * 3600 / 1e6 // millions of messages at 100 a second
	for _, c := range []struct {
		name        string
		batch, size int
		want        float64
	}{
		{"SQS standard", 1, 1000, 3 * 0.40},
		{"SQS FIFO", 1, 1000, 3 * 0.50},
		{"SQS standard", 1000, 1000, 3 * 0.40 / 10},
		{"SQS standard", 10, 10_000, (2*2 + 1) * 0.40 / 10},   // 100,000 bytes are 2 chunks of 64 KB
		{"SQS standard", 10, 100_000, (2*16 + 1) * 0.40 / 10}, // 1,000,000 are 16
		{"SQS standard", 10, 1_000_000, (2*16 + 1) * 0.40},    // 10 would be over 1 MiB
		{"Kinesis on demand", 1, 1000, 1.024*(0.08+0.04) + 0.04*730/perMonth},
		{"Kinesis on demand", 10, 1000, 1.024*(0.08+0.04) + 0.04*730/perMonth}, // 10,000 bytes are 10 KB of 1,024
		{"Kinesis provisioned", 1, 1000, 0.014 + 0.015*730/perMonth},
		{"Kinesis provisioned", 100, 1000, 4*0.014/100 + 0.015*730/perMonth}, // 100,000 bytes are 4 units of 25 KB
		{"Kinesis provisioned", 1, 100_000, 4*0.014 + 10*0.015*730/perMonth}, // 10 MB a second in are 10 shards
		{"MSK serverless", 1, 1000, 0.10 + 0.05 + 0.10*168/730 + (0.75+0.0015)*730/perMonth},
		{"MSK, 2 x kafka.t3.small", 1, 100, 2 * (0.0456*730 + 0.10*10) / perMonth}, // 6 GB in a week: the least is 10
	} {
		for _, r := range cost.Rivals(workload(c.batch, c.size), price) {
			if r.Name == c.name {
				near(t, fmt.Sprintf("%s, %d of %d", c.name, c.batch, c.size), r.PerMillion, c.want)
			}
		}
	}
	for _, r := range cost.Rivals(workload(1, 100_000), price) {
		if got := r.Name == "MSK, 2 x kafka.t3.small"; got != r.Beyond {
			t.Errorf("10 MB a second: %+v", r)
		}
	}
}

// TestCrossings: at the rate that is told the costs are equal, to a step.
func TestCrossings(t *testing.T) {
	price, w := cost.USEast1(), workload(10, 1000)
	const fixed, perMillion = 7.0, 1.5
	crossings := cost.CrossingRates(w, fixed, perMillion, price)
	if !crossings[0].Never || !crossings[1].Never {
		t.Errorf("SQS at $0.12 against $1.50: %+v", crossings[:2])
	}
	// On demand: 29.20 a month and 0.12288 a million, against 7 and 1.5.
	months := (29.20 - fixed) / (perMillion - 0.12288) / (730 * 3600) * 1e6
	if got := crossings[2]; got.From || got.Rate < months/1.02 || got.Rate > months*1.02 {
		t.Errorf("Kinesis on demand: %+v, want %.3f", got, months)
	}
	if all := cost.CrossingRates(w, 0, 0.01, price); !all[4].Always {
		t.Errorf("MSK serverless against a cent: %+v", all[4])
	}
}

// TestIdle: an idle stack's runs, by hand: 60 and 12 an hour.
func TestIdle(t *testing.T) {
	idle, err := cost.IdleOf(t.Context(), cost.USEast1())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"schedules": 72 * 730 * 1.00 / 1e6, "Lambda calls": 72 * 730 * 0.20 / 1e6,
		"metrics of runs": 8 * 0.30, "alarms": 13 * 0.10, "dashboard": 3,
	}
	sum := 0.0
	for _, p := range idle.Parts {
		sum += p.USD
		if usd, ok := want[p.Name]; ok {
			near(t, p.Name, p.USD, usd)
			delete(want, p.Name)
		}
		// A run of the leader: what it watches, the mark, names twice, ten topics at two reads, a step of the walk.
		if most := 730 * (60*28.0 + 12*4); strings.HasPrefix(p.Name, "DynamoDB reads") && p.Count > most {
			t.Errorf("%.0f read units a month, want at most %.0f", p.Count, most)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	near(t, "sum", idle.Total, sum)
	// 3 long polls a minute, 20 s of half a GB each, and that is most of it; each is a call, and 43 looks of 2 reads, and
	// now and then of 4.
	least := 730 * 180 * 20 * 0.5 * 0.0000133334
	if most := least + 730*180*(43*2.5*0.125+2.5)/1e6; idle.Waiter < least || idle.Waiter > most {
		t.Errorf("a waiting consumer costs %.2f, want a little more than %.2f", idle.Waiter, least)
	}
	near(t, "SQS long poll", idle.SQSWaiter, 730*180*0.40/1e6)
}

// TestSameEachTime: a bill follows from the workload alone.
func TestSameEachTime(t *testing.T) {
	w := cost.Workload{Batch: 12, Size: 5000, Segments: 2, Keyed: true, Groups: 2, Producers: 5, Delayed: 0.5, Rate: 1}
	var first string
	for range 2 {
		data, err := json.Marshal(bill(t, w))
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(data)
		} else if string(data) != first {
			t.Fatalf("two bills of one workload:\n%s\n%s", first, data)
		}
	}
}

func TestCheck(t *testing.T) {
	good := workload(10, 1000)
	for name, change := range map[string]func(*cost.Workload){
		"--batch: must be 1 to 10000, not 0":                         func(w *cost.Workload) { w.Batch = 0 },
		"--batch: must be 1 to 10000, not 10001":                     func(w *cost.Workload) { w.Batch = queue.MaxBatchRecords + 1 },
		"--size: must be 1 to 1048576, not -1":                       func(w *cost.Workload) { w.Size = -1 },
		"--segments: must be 1 to 64, not 65":                        func(w *cost.Workload) { w.Segments = 65 },
		"--groups: must be 0 to 32, not 33":                          func(w *cost.Workload) { w.Groups = 33 },
		"--claim: must be 0 to 10000, not -5":                        func(w *cost.Workload) { w.Claim = -5 },
		"--producers: must be 0 to 256, not 1000000":                 func(w *cost.Workload) { w.Producers = 1_000_000 },
		"--delayed: must be 0 to 1, not NaN":                         func(w *cost.Workload) { w.Delayed = math.NaN() },
		"--delayed: must be 0 to 1, not 1.5":                         func(w *cost.Workload) { w.Delayed = 1.5 },
		"--rate: must be 0.001 to 1e+07 messages a second, not +Inf": func(w *cost.Workload) { w.Rate = math.Inf(1) },
		"--rate: must be 0.001 to 1e+07 messages a second, not 0":    func(w *cost.Workload) { w.Rate = 0 },
		"--keep: must be 0 to 10 years, not -1ns":                    func(w *cost.Workload) { w.Keep = -1 },
		"--batch, --claim, --groups, --segments: together they are too large for a run of some seconds; make the batch smaller or the claim larger": func(w *cost.Workload) {
			w.Batch, w.Size, w.Claim, w.Groups, w.Segments = queue.MaxBatchRecords, 1, 1, 32, 64
		},
	} {
		w := good
		change(&w)
		if err := w.Check(); err == nil || err.Error() != name {
			t.Errorf("%v, want %s", err, name)
		}
	}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
}

// TestExtremes: the ends of what is allowed end, and in numbers.
func TestExtremes(t *testing.T) {
	for _, w := range []cost.Workload{
		{Batch: 1, Size: 1, Segments: 1, Rate: 0.001},
		{Batch: 1, Size: 1 << 20, Segments: 1, Groups: 1, Rate: 1e7},
		{Batch: 10_000, Size: 1, Segments: 4, Keyed: true, Groups: 0, Rate: 1e7},
		{Batch: 20, Size: 9000, Segments: 1, Groups: 1, Claim: 1, Delayed: 1, Rate: 1},
	} {
		b := bill(t, w)
		if !(b.PerMillion > 0) || math.IsInf(b.PerMillion, 0) || !(b.PerGB > 0) {
			t.Errorf("%+v: %v a million, %v a GB", w, b.PerMillion, b.PerGB)
		}
		if _, err := json.Marshal(b); err != nil {
			t.Errorf("%+v: %v", w, err)
		}
	}
}
