package cost

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
)

// The page's sizes and batches. The plot has the batches between, too.
func pageSizes() []int { return []int{100, 1_000, 10_000, 100_000} }

func pageBatches() []int { return []int{1, 10, 100, 1000} }

func plotBatches() []int { return []int{1, 3, 10, 30, 100, 300, 1000} }

// PageWorkload is the workload of the page's tables.
func PageWorkload(batch, size int) Workload {
	return Workload{Batch: batch, Size: size, Segments: 1, Groups: 1, Producers: 1, Rate: 100, Keep: 7 * 24 * time.Hour}
}

// study is all that the page tells.
type study struct {
	prices Prices
	idle   Idle
	// bills by size, then batch.
	bills map[int]map[int]*Bill
}

func newStudy(ctx context.Context, p Prices) (*study, error) {
	s := &study{prices: p, bills: make(map[int]map[int]*Bill)}
	var err error
	if s.idle, err = IdleOf(ctx, p); err != nil {
		return nil, err
	}
	for _, size := range pageSizes() {
		s.bills[size] = make(map[int]*Bill)
		runs := make(map[int]*Usage) // by messages of a call: what is over the limit of a call is the same
		for _, batch := range plotBatches() {
			w := PageWorkload(batch, size)
			u := runs[w.call()]
			if u == nil {
				if u, err = Run(ctx, w); err != nil {
					return nil, fmt.Errorf("batch %d, size %d: %w", batch, size, err)
				}
				runs[w.call()] = u
			}
			b := billOf(w, u, p)
			b.Rivals = Rivals(w, p)
			s.bills[size][batch] = b
		}
	}
	return s, nil
}

// Page makes docs/cost.md and its plot.
func Page(ctx context.Context) (page, plot string, err error) {
	s, err := newStudy(ctx, USEast1())
	if err != nil {
		return "", "", err
	}
	var b strings.Builder
	b.WriteString("<!-- Made by `go generate ./cmd/spillway/internal/cost`: change that, not this. -->\n\n")
	s.intro(&b)
	s.tables(&b)
	s.parts(&b)
	s.crossings(&b)
	s.idleTable(&b)
	s.assumed(&b)
	s.priceTable(&b)
	return b.String(), s.plot(), nil
}

func money(usd float64) string {
	switch {
	case usd == 0:
		return "0"
	case usd >= 100:
		return fmt.Sprintf("$%.0f", usd)
	case usd >= 0.1:
		return fmt.Sprintf("$%.2f", usd)
	case usd >= 0.001:
		return fmt.Sprintf("$%.4f", usd)
	default:
		return fmt.Sprintf("$%.6f", usd)
	}
}

func sizeText(n int) string {
	if n >= 1000 {
		return fmt.Sprintf("%d KB", n/1000)
	}
	return fmt.Sprintf("%d B", n)
}

func row(b *strings.Builder, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func header(b *strings.Builder, cells ...string) {
	row(b, cells...)
	b.WriteString("|" + strings.Repeat(" --- |", len(cells)) + "\n")
}

func (s *study) intro(b *strings.Builder) {
	one, ten, hundred := s.bills[1000][1], s.bills[1000][10], s.bills[1000][100]
	fmt.Fprintf(b, `# What it costs

In short, in %s, without free tiers, for messages of 1 KB that one group consumes:

- **One message a call: use SQS.** A million costs %s here and %s there.
- **Ten a call: SQS still, by %.0f times** (%s and %s): its limit of ten a call is where it is at its best.
- **A hundred a call: %s here, %s there.** From about %.0f a call on Spillway is cheaper, and each ten times more messages a
  call make it about ten times cheaper, where SQS stays as it is.
- **A stack that does nothing costs %s a month**, of which %s is within AWS's free tier in an account that has
  nothing else. It is metrics, alarms and the dashboard; what runs costs %s.
- **A consumer that waits with long polls costs %s a month**, as a function runs while it waits; one that asks every 10 seconds
  costs %s. On SQS a long poll costs %s.
- Kinesis and MSK cost by the hour: see below from which rate on they are cheaper.

`+"`spillway cost --batch 10 --size 1KB`"+` computes any of these. It puts messages through the code that runs on AWS, on stores in memory whose
requests are counted, up to whole rolls and compactions, and prices what was counted.

![Cost of a million messages by batch size](cost.svg)

`, Region, money(one.PerMillion), money(one.Rivals[0].PerMillion), ten.PerMillion/ten.Rivals[0].PerMillion, money(ten.PerMillion), money(ten.Rivals[0].PerMillion),
		money(hundred.PerMillion), money(hundred.Rivals[0].PerMillion), round(s.sqsCrossing(1000)),
		money(s.idle.Total), money(s.idle.FreeTier), money(s.idle.running()),
		money(s.idle.Waiter), money(s.idle.Poller), money(s.idle.SQSWaiter))
}

// running is what of the idle bill is not CloudWatch's.
func (i *Idle) running() float64 {
	usd := 0.0
	for _, p := range i.Parts {
		switch p.Name {
		case "alarms", "dashboard", "metrics of runs":
		default:
			usd += p.USD
		}
	}
	return usd
}

// round gives two significant digits.
func round(n float64) float64 {
	if n <= 0 {
		return n
	}
	unit := math.Pow(10, math.Floor(math.Log10(n))-1)
	return math.Round(n/unit) * unit
}

func (s *study) tables(b *strings.Builder) {
	w := PageWorkload(1, 1)
	fmt.Fprintf(b, "## A million messages\n\nUS dollars, produced once and consumed by one group, at %g messages a second, kept for %.0f days where a service keeps "+
		"by the byte. The rivals are at their best: SQS in batches of up to ten, Kinesis with a batch joined into one record (which an aggregating producer "+
		"does). Those that cost by the hour include their hours at that rate; Spillway's idle cost is apart, below. *Floor* is one S3 put and one "+
		"write unit a call: below it no queue can be that has put its messages into S3 before it acknowledges them (payloads of up to 8 KB go to DynamoDB instead).\n\n", w.Rate, w.Keep.Hours()/24)
	for _, size := range pageSizes() {
		fmt.Fprintf(b, "### %s a message\n\n", sizeText(size))
		cells := []string{"messages a batch"}
		for _, batch := range pageBatches() {
			cell := fmt.Sprint(batch)
			if n := s.bills[size][batch].CallMessages; n < batch {
				cell = fmt.Sprintf("%d (calls of %d)", batch, n)
			}
			cells = append(cells, cell)
		}
		header(b, cells...)
		line := func(name string, of func(*Bill) string) {
			cells := []string{name}
			for _, batch := range pageBatches() {
				cells = append(cells, of(s.bills[size][batch]))
			}
			row(b, cells...)
		}
		line("**Spillway**", func(x *Bill) string { return "**" + money(x.PerMillion) + "**" })
		line("Spillway, for a GB", func(x *Bill) string { return money(x.PerGB) })
		line("floor", func(x *Bill) string { return money(x.Floor) })
		for i, r := range s.bills[size][1].Rivals {
			line(r.Name, func(x *Bill) string {
				if x.Rivals[i].Beyond {
					return "more than it bears"
				}
				return money(x.Rivals[i].PerMillion)
			})
		}
		b.WriteString("\n")
	}
	b.WriteString("A call carries at most 3 MiB of bodies here; larger batches are several calls. Uploads by reference have no such bound and are not in the model.\n\n")
}

func (s *study) parts(b *strings.Builder) {
	b.WriteString("## Where it goes\n\nMessages of 1 KB, US dollars a million; in brackets produce, consume, compact.\n\n")
	cells := []string{"messages a batch"}
	for _, batch := range pageBatches() {
		cells = append(cells, fmt.Sprint(batch))
	}
	header(b, cells...)
	for i, part := range s.bills[1000][1].Parts {
		cells := []string{part.Name}
		for _, batch := range pageBatches() {
			x := s.bills[1000][batch].Parts[i]
			cell := money(x.Total)
			if x.Produce+x.Consume+x.Compact > 0 {
				cell += fmt.Sprintf(" (%s, %s, %s)", money(x.Produce), money(x.Consume), money(x.Compact))
			}
			cells = append(cells, cell)
		}
		row(b, cells...)
	}
	cells = []string{"**all**"}
	units := []string{"write units of a commit's head update"}
	for _, batch := range pageBatches() {
		cells = append(cells, "**"+money(s.bills[1000][batch].PerMillion)+"**")
		units = append(units, fmt.Sprintf("%.2f", s.bills[1000][batch].WriteUnitsPerCommit))
	}
	row(b, cells...)
	row(b, units...)
	b.WriteString("\nWhat moves these numbers: `--groups` (each consumes all), `--keyed` with `--segments` (a call touches more segments), " +
		"`--producers` (a head remembers each for 15 minutes, at about 55 bytes that every commit to it pays for), `--delayed`.\n\n")
}

// sqsCrossing is the batch size from which on Spillway costs less than SQS standard.
func (s *study) sqsCrossing(size int) float64 {
	var ours, theirs []point
	for _, batch := range plotBatches() {
		x := s.bills[size][batch]
		ours, theirs = append(ours, point{batch, x.PerMillion}), append(theirs, point{batch, x.Rivals[0].PerMillion})
	}
	return crossingBatch(ours, theirs)
}

func (s *study) crossings(b *strings.Builder) {
	b.WriteString("## Where the costs cross\n\n**With SQS** it is a matter of the batch. Spillway costs less than SQS standard from about so many messages a call on:\n\n")
	var heads, cells []string
	for _, size := range pageSizes() {
		heads = append(heads, sizeText(size))
		switch n := s.sqsCrossing(size); n {
		case 0:
			cells = append(cells, "never")
		case 1:
			cells = append(cells, "always")
		default:
			cells = append(cells, rateText(n))
		}
	}
	header(b, heads...)
	row(b, cells...)
	b.WriteString("\n**With Kinesis and MSK** it is a matter of the rate, as they cost by the hour. Messages of 1 KB; Spillway's idle cost is included, with one " +
		"consumer that asks every 10 seconds, or (second figure) that waits with long polls. Spillway costs less:\n\n")
	header(b, append([]string{"messages a batch"}, rivalNames(s.prices)[2:]...)...)
	for _, batch := range pageBatches() {
		cells := []string{fmt.Sprint(batch)}
		w, usd := PageWorkload(batch, 1000), s.bills[1000][batch].PerMillion
		polled := CrossingRates(w, s.idle.Total+s.idle.Poller, usd, s.prices)
		waited := CrossingRates(w, s.idle.Total+s.idle.Waiter, usd, s.prices)
		for i := 2; i < len(polled); i++ {
			cell := polled[i].text()
			if other := waited[i].text(); other != cell {
				cell += "; " + other
			}
			cells = append(cells, cell)
		}
		row(b, cells...)
	}
	fmt.Fprintf(b, "\nIn messages a second, from %g to %d, at the first rate where the cheaper one changes. Provisioned Kinesis is taken to be "+
		"full to the last byte of its shards, and not to be scaled up for peaks.\n\n", leastRate, mostRate)
}

func rivalNames(p Prices) []string {
	var out []string
	for _, r := range Rivals(PageWorkload(1, 1000), p) {
		out = append(out, r.Name)
	}
	return out
}

func (c Crossing) text() string {
	switch {
	case c.Always:
		return "always"
	case c.Never:
		return "never"
	case c.From:
		return "from " + rateText(c.Rate) + "/s on"
	}
	return "up to " + rateText(c.Rate) + "/s"
}

// rateText gives two significant digits.
func rateText(rate float64) string {
	decimals := max(0, 1-int(math.Floor(math.Log10(rate))))
	return fmt.Sprintf("%.*f", decimals, round(rate))
}

func (s *study) idleTable(b *strings.Builder) {
	b.WriteString("## A stack that does nothing\n\nA month of " + fmt.Sprint(hoursPerMonth) + " hours, as `make deploy` makes it: `leader` every minute, `compactor` every five.\n\n")
	header(b, "what", "how much", "US dollars", "in the free tier")
	for _, p := range s.idle.Parts {
		row(b, p.Name, fmt.Sprintf("%.0f %s", p.Count, p.Unit), money(p.USD), money(p.Free))
	}
	row(b, "**all**", "", "**"+money(s.idle.Total)+"**", money(s.idle.FreeTier))
	b.WriteString("\n`-c dashboard=false` leaves the dashboard out. While the API is called there are more metrics: six for each function that is called " +
		"and six for each of its routes, at the price of a metric and month; two functions and three routes in use are $9 a month.\n\n" +
		"`leader` also looks for delayed messages that nobody claims in every topic, which is two reads a topic and run; most of the reads above are that.\n\n")
}

func (s *study) assumed(b *strings.Builder) {
	a := Assumed()
	fmt.Fprintf(b, `## What is counted, and what is assumed

Counted, by running the code: calls of the API (HTTP API: one request for each 512 KB), DynamoDB's units by the size of the items as the table
holds them (1 KB a write unit, 4 KB a read unit, twice in a transaction, the driver's own reads and folds), S3's requests by
class, bytes that are kept. %s has the rules.

Assumed, as a run in memory cannot tell: a call takes %g ms of its own, and %g ms for each MB in or out; then, one after another, %g ms for a read,
%g ms for a write, %g ms for a transaction, %g ms for an S3 put and %g ms for a get (medians measured from Lambda where there were any). Functions
have %g, %g and %g GB (API, leader, compactor). A call leaves %.0f bytes of metrics and about %.0f bytes of access log.

Not in it: free tiers (but for the line above), volume discounts, savings plans, transfer out of the region, calls that are tried again, polls that find
nothing (but for the waiting consumer above), topics' maps read by more than one instance of a function. Nothing deletes messages
by age yet, so what is kept longer than in the tables goes on to cost: a GB-month is %s in S3.

`, "`pkg/meter`", a.CallMillis, a.MillisPerMB, a.ReadMillis, a.WriteMillis, a.TransactMillis, a.PutMillis, a.GetMillis,
		a.APIGB, a.LeaderGB, a.CompactorGB, callLogBytes(), a.AccessLogBytes, money(s.prices.S3GB.USD))
}

func (s *study) priceTable(b *strings.Builder) {
	fmt.Fprintf(b, "## Prices\n\nList prices of %s, %s. The price pages could not be read live when the table was made; the last column says what each was held against. "+
		"They are in one place, `cmd/spillway/internal/cost/prices.go`.\n\n", Region, Date)
	header(b, "service", "US dollars", "for", "source", "checked")
	for _, p := range s.prices.each() {
		row(b, p.service, fmt.Sprint(p.USD), p.Per, "<"+p.Source+">", p.Checked)
	}
}
