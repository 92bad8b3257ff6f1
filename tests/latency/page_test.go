package latency_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/latency"
)

func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func header(b *strings.Builder, cells ...string) {
	row(b, cells...)
	b.WriteString("|" + strings.Repeat(" --- |", len(cells)) + "\n")
}

// page makes docs/latency.md.
func (s *study) page() string {
	var b strings.Builder
	b.WriteString("<!-- Made by `go generate ./tests/latency`: change that, not this. -->\n\n")
	s.intro(&b)
	s.goalTable(&b)
	s.produceTable(&b)
	s.wayTable(&b)
	s.slow(&b)
	rivals(&b)
	assumed(&b)
	figureTable(&b)
	return b.String()
}

func (s *study) intro(b *strings.Builder) {
	one, other := s.inline[1].acknowledged, s.ways[len(s.ways)-2].received
	quiet := s.ways[len(s.ways)-1].received
	fmt.Fprintf(b, `# How long it takes

What the stores' published times make of Spillway on AWS. In short, without the network to the caller, API Gateway and Lambda (below):

- **Produce, up to 8 KB a call: %s ms at the median, %s ms at p99.** Bytes and commit are two writes to DynamoDB. One call in 32 meets
  the roll of the segment's tail that the one before it began, which makes that p99; of the others it is %s ms.
- **Produce, more than 8 KB: %s or %s ms by S3 Standard**, as one or the other published measurement of it holds, and %s ms by S3
  Express One Zone: a put, then the commit.
- **To a consumer that waits in the same process: %s ms from the call's begin at the median** for small messages.
- **To a consumer that waits in another process, which is so with Lambda: %s s at the median, and %s s where messages come seldom.** A long poll hears
  nothing of other processes: it looks after pauses of 0.1 to 0.5 seconds, longer on many segments. This, not the stores, is the latency of a queue there.

![Produce latency by batch size](latency.svg)

The model runs the use cases that run on AWS, on stores in memory that take the times which are published of DynamoDB and S3, in simulated
time: it is no measurement of AWS, and gives the same each time. %s has the times, `+"`tests/latency`"+` the model.

`, ms(one.at(0.5)), ms(one.at(0.99)), ms(s.inline[1].unrolled.at(0.99)),
		ms(s.large[fast][10].acknowledged.at(0.5)), ms(s.large[standard][10].acknowledged.at(0.5)), ms(s.large[express][10].acknowledged.at(0.5)),
		ms(s.ways[0].received.at(0.5)), seconds(other.at(0.5)), seconds(quiet.at(0.5)), "`pkg/latency`")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

func (s *study) goalTable(b *strings.Builder) {
	b.WriteString("## Goals\n\n")
	header(b, "goal", "bound, ms", "by the published times, ms", "met", "if not, why")
	for _, g := range s.goals() {
		met := "yes"
		if !g.met() {
			met = "**no**"
		}
		row(b, g.name, ms(g.bound), ms(g.got), met, g.cause)
	}
	b.WriteString("\nSmall means 1 message of 1 KB; S3's are 10 KB. `TestGoals` holds each line to what it says.\n\n")
}

func (s *study) produceTable(b *strings.Builder) {
	fmt.Fprintf(b, "## Produce\n\nFrom the call's begin to its acknowledgement, in ms; messages of 1 KB, one segment. One call after the other, %d of each kind (of those "+
		"of 100 and more messages %d, too few for a p99). There is no waiting to join calls on the server: a call is committed by itself.\n\n", manyCalls, fewCalls)
	header(b, "messages a call", "bytes go to", "p50", "p90", "p99", "p99 of those that meet no roll")
	line := func(n int, where string, o outcome) {
		high, unrolled := "–", "–"
		if len(o.acknowledged) >= manyCalls {
			high, unrolled = ms(o.acknowledged.at(0.99)), ms(o.unrolled.at(0.99))
		}
		row(b, fmt.Sprint(n), where, ms(o.acknowledged.at(0.5)), ms(o.acknowledged.at(0.9)), high, unrolled)
	}
	for _, n := range inlineBatches() {
		line(n, "DynamoDB", s.inline[n])
	}
	for _, n := range largeBatches() {
		for i, st := range stores() {
			line(n, st.name, s.large[i][n])
		}
	}
	b.WriteString("\nAt a fixed rate, calls at random instants, each made when it is due:\n\n")
	header(b, "load", "p50", "p90", "p99")
	for _, l := range s.steady {
		row(b, l.name, ms(l.acknowledged.at(0.5)), ms(l.acknowledged.at(0.9)), ms(l.acknowledged.at(0.99)))
	}
	b.WriteString("\nOne segment takes some 250 small commits a second; above that the topic needs more of them ([scaling.md](scaling.md)), and until it has them calls " +
		"are refused and tried again. Where calls are seldom, each reads the topic's record and map first, as the cached ones are older than 2 s.\n\n")
}

func (s *study) wayTable(b *strings.Builder) {
	fmt.Fprintf(b, "## From producer to consumer\n\nFrom the produce call's begin to the answer of a claim that waits (long poll of 20 s, one after the other, each acknowledged), in ms; %d calls of each kind.\n\n", manyCalls)
	header(b, "consumer waits in the", "p50", "p90", "p99")
	for _, l := range s.ways {
		row(b, l.name, ms(l.received.at(0.5)), ms(l.received.at(0.9)), ms(l.received.at(0.99)))
	}
	b.WriteString("\nThe same process: `spillway serve`, or a fleet of one. Another process: functions on Lambda, always, as produce and consume are two of them; in a fleet, whoever did not take the message in.\n\n")
}

func (s *study) slow(b *strings.Builder) {
	b.WriteString(`## Where the time goes

- **The roll.** The writer whose commit makes the tail 32 refs long moves them to a page, by a transaction, once it has answered
  ([decisions/0014](decisions/0014-a-roll-comes-after-the-answer.md)). While it is under way the store refuses other commits to the segment, so a call of the same process
  waits for it, and one of another tries again: that is the p99 of a segment under load. A longer tail would make rolls rarer and each commit dearer.
- **Bytes, then commit.** They cannot go side by side: a ref must not be readable before its bytes are durable (invariant 1). One transaction of both takes
  longer than the two.
- **A claim reads the cursor and then the head**, then takes, then reads bytes that are not cached: four requests one after the other. The first two need nothing
  of each other.
- **A long poll's pauses** are what a waiting consumer in another process waits for; each look costs two reads a segment ([cost.md](cost.md)).

`)
}

func rivals(b *strings.Builder) {
	b.WriteString("## What others publish\n\nMeasured, and with their own networks and batching in it, where the model has the stores' times alone: not to be set against it to the millisecond. In ms.\n\n")
	header(b, "system", "what", "p50", "p99", "source", "checked")
	for _, r := range [][]string{
		{"WarpStream, S3 Standard", "produce", "250", "500", "<https://docs.snakream.tonbo.dev/competitive-comparison>, 2026, citing WarpStream's benchmark (it has the second as p95)", "a stored page of a third party; WarpStream's own page tells it in pictures"},
		{"WarpStream, S3 Standard", "produce, as configured by default", "", "400", "<https://www.warpstream.com/blog/the-art-of-being-lazy-log-lower-latency-and-higher-availability-with-delayed-sequencing>, February 2026", "read in a stored excerpt"},
		{"WarpStream, S3 Standard", "produce; end to end", "", "400–600; below 1,500", "<https://aws.amazon.com/blogs/storage/how-warpstream-enables-cost-effective-low-latency-streaming-with-amazon-s3-express-one-zone>", "read in a stored copy"},
		{"WarpStream, S3 Express One Zone", "produce", "105", "169", "<https://www.warpstream.com/blog/warpstream-s3-express-one-zone-benchmark-and-total-cost-of-ownership>, April 2025", "read in a stored copy"},
		{"WarpStream, Lightning Topics", "produce, S3 Express One Zone", "33", "50", "as the second line", "read in a stored excerpt"},
		{"S2, Standard", "append", "", "within 400", "<https://s2.dev/docs/concepts/durability-consistency>", "read in a stored copy"},
		{"S2, Express", "append", "", "within 40", "<https://s2.dev/docs/concepts/durability-consistency>", "read in a stored copy"},
		{"SQS standard", "producer to Lambda consumer", "16.2", "105", "<https://bitesizedserverless.com/bite/serverless-messaging-latency-compared/>, September 2022", "read in a stored copy"},
		{"SQS FIFO", "producer to Lambda consumer", "28.1", "645", "the same", "read in a stored copy"},
		{"Kinesis", "producer to Lambda consumer", "627", "1580", "the same", "read in a stored copy"},
		{"Kinesis, enhanced fan-out", "producer to Lambda consumer", "49.4", "109", "the same", "read in a stored copy"},
	} {
		row(b, r...)
	}
	b.WriteString("\n")
}

func assumed(b *strings.Builder) {
	b.WriteString(`## What is left out, and what is assumed

- **API Gateway and Lambda, warm: assumed to add 10 to 30 ms a call.** Not verified: nothing with percentiles was found.
- **A cold start: some 100 ms more.** Published for Go on arm64 are 80 to 150 ms at the median (<https://hivebook.wiki/wiki/aws-lambda-cold-starts>, April 2026,
  read in a stored copy); of that this project's functions need 19 ms from their start to the first request of the runtime API, measured on a developer's machine.
- The network between caller and API, and the time that a function computes: a few ms for a call of a MB.
- Failures, and calls that are tried again. No load here is throttled. A transaction is taken to hold its items from its begin to its answer; how long DynamoDB
  holds them is not published.
- Where no percentiles were found, those of something not faster are taken; where only means were, they are taken for medians. The table says where.

`)
}

func figureTable(b *strings.Builder) {
	b.WriteString("## The stores' times\n\nIn ms. No page could be read live when this was made: the last column says whether a stored copy of the source was read and tells these numbers. Between two " +
		"percentiles a curve is lognormal, and goes through both; beyond the last it goes on so. They are in one place, `pkg/latency/figures.go`, which `tests/flood` draws from, too.\n\n")
	header(b, "service", "request", "least", "p50", "p90", "p95", "p99", "p99.9", "slowest", "MiB/s above", "source", "checked")
	cell := func(v float64) string {
		if v == 0 {
			return ""
		}
		return fmt.Sprintf("%.4g", v)
	}
	line := func(f latency.Figure) {
		slowest, more, checked := cell(f.Slowest), "", "read in a stored copy"
		if f.Count > 0 {
			slowest += fmt.Sprintf(" of %d", f.Count)
		}
		if f.PerSecond > 0 {
			more = fmt.Sprintf("%d, %d KiB", f.PerSecond>>20, f.Bytes>>10)
		}
		if !f.Read {
			checked = "**not as it stands here**"
		}
		if f.Note != "" {
			checked += "; " + f.Note
		}
		row(b, f.Service, f.Request, cell(f.Least), cell(f.P50), cell(f.P90), cell(f.P95), cell(f.P99), cell(f.P999), slowest, more,
			"<"+f.Source+">, "+f.Date, checked)
	}
	table := latency.DynamoDB()
	for _, f := range []latency.Figure{table.Write, table.Read, table.Many, table.Transact, table.TransactMany} {
		line(f)
	}
	for _, st := range stores() {
		line(st.figures.Put)
		line(st.figures.Get)
	}
	b.WriteString("\nAlso seen, and not used: Tigris' benchmark of July 2025 has PUTs of 1 KB to S3 at 25.7 ms (p50) and 37.8 ms (p90), from a neighbouring cloud " +
		"(<https://www.tigrisdata.com/docs/overview/benchmarks/summary>); the source of S3 Express has 76.4 ms as the mean of a PUT of 64 KiB to S3 Standard; AWS says single-digit " +
		"milliseconds of DynamoDB within the service and of S3 Express to the first byte. So S3 Standard lies somewhere between its two rows.\n")
}
