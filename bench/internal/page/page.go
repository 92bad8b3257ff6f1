// Package page writes what the runs gave as a page with tables and plots.
//
// Invariants: the same rows give the same bytes. Every peer has a line in every workload's table, with the reason where
// it has no figures; no line is left out for being unfavourable.
package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/machine"
	"github.com/spillway-mq/spillway/bench/internal/peer"
	"github.com/spillway-mq/spillway/bench/internal/result"
	"github.com/spillway-mq/spillway/bench/internal/workload"
)

// Page is what is written.
type Page struct {
	Machine   machine.Machine
	Rows      []result.Row
	Peers     []peer.Peer
	Workloads []workload.Workload
}

// The plots' names beside the page.
const (
	RatesPlot = "bench/rates.svg"
	TimesPlot = "bench/times.svg"
)

// quietLoad is the most that a machine's load may be before the first run for its figures to be taken at their word.
const quietLoad = 0.5

// row gives a peer's row; nil if there is none.
func (p *Page) row(w *workload.Workload, name string) *result.Row {
	for i := range p.Rows {
		if p.Rows[i].Workload == w.Name && p.Rows[i].Peer == name {
			return &p.Rows[i]
		}
	}
	return nil
}

// shown are the workloads that have rows.
func (p *Page) shown() []*workload.Workload {
	var shown []*workload.Workload
	for i := range p.Workloads {
		for j := range p.Peers {
			if p.row(&p.Workloads[i], p.Peers[j].Name) != nil {
				shown = append(shown, &p.Workloads[i])
				break
			}
		}
	}
	return shown
}

// Markdown gives the page.
func (p *Page) Markdown() string {
	var b strings.Builder
	b.WriteString("<!-- Made by `make bench-page`: change the bench module, not this. -->\n\n# Beside other queues\n\n")
	p.intro(&b)
	p.summary(&b)
	fmt.Fprintf(&b, "![Messages a second, by workload](%s)\n\n![Times, by workload](%s)\n\n", RatesPlot, TimesPlot)
	p.peers(&b)
	for _, w := range p.shown() {
		p.table(&b, w)
	}
	p.how(&b)
	return b.String()
}

func (p *Page) intro(b *strings.Builder) {
	m := &p.Machine
	busy := ""
	if m.Load > quietLoad {
		busy = "\n- **The machine had other work at the same time: these figures are rough**, and the systems that came first or last may have had it easier."
	}
	fmt.Fprintf(b, `Spillway and other queues with the same load, one after the other in turn, on one machine, each through its own client. Read it with
care: client and server share the machine's %d cores, so a client that is dear slows its own system; every system runs as one
node, without replicas; and the guarantees differ, as the second table says. A durable acknowledgement costs
a disk's sync, and whoever does not wait for it is faster.

- Machine: %s, %d cores, %.0f GB of memory, %s; %s. Its disk makes %.0f appends of 4 KB a second durable, one after
  another. Load average before: %.2f.
- Date: %s, commit %s.%s

`, m.Cores, m.CPU, m.Cores, float64(m.Memory)/(1<<30), m.Kernel, m.Go, m.Syncs, m.Load, m.Date, m.Commit, busy)
}

// ratio is the one that a workload's summary shows: of rates, or of times.
func ratio(w *workload.Workload, r *result.Row) result.Spread {
	if w.Trickle() {
		return r.RatioEnd
	}
	return r.RatioOut
}

func (p *Page) summary(b *strings.Builder) {
	base := p.Peers[0]
	fmt.Fprintf(b, "## In short\n\n%s's figure by the other's, the median of pairs. Of rates, which go in and out, above 1 means that %s is faster; of\n"+
		"times (%s), which are p99, above 1 means that it is slower. The tables below have the figures.\n\n", base.Title, base.Title, strings.Join(p.timed(), ", "))
	shown := p.shown()
	b.WriteString("| |")
	for _, w := range shown {
		fmt.Fprintf(b, " %s |", w.Name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(shown)) + "\n")
	for i := range p.Peers[1:] {
		other := &p.Peers[i+1]
		fmt.Fprintf(b, "| %s |", other.Title)
		for _, w := range shown {
			fmt.Fprintf(b, " %s |", p.short(w, other))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
}

// timed are the names of the workloads whose ratio is of times.
func (p *Page) timed() []string {
	var names []string
	for _, w := range p.shown() {
		if w.Trickle() {
			names = append(names, "*"+w.Name+"*")
		}
	}
	return names
}

func (p *Page) short(w *workload.Workload, other *peer.Peer) string {
	r := p.row(w, other.Name)
	switch {
	case r == nil:
		return "not run"
	case r.Runs == 0 && strings.HasPrefix(r.Status, result.NoFeature):
		return "–"
	case r.Runs == 0:
		word, _, _ := strings.Cut(r.Status, ":")
		return word
	}
	if v := ratio(w, r).Median; v > 0 {
		return times(v)
	}
	return "no pair"
}

func (p *Page) peers(b *strings.Builder) {
	b.WriteString("## Who took part\n\n| system | version | an acknowledgement means | |\n| --- | --- | --- | --- |\n")
	for i := range p.Peers {
		x := &p.Peers[i]
		version := ""
		for j := range p.Rows {
			if p.Rows[j].Peer == x.Name && p.Rows[j].Version != "" {
				version = p.Rows[j].Version
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", x.Title, version, x.Durability, x.Notes[""])
	}
	b.WriteString("\n")
}

func (p *Page) table(b *strings.Builder, w *workload.Workload) {
	fmt.Fprintf(b, "## %s: %s\n\n", w.Name, w.Title)
	columns := []string{"in /s", "in and out /s", "ratio", "send p50, p99"}
	switch {
	case w.Delay > 0:
		columns = []string{"in /s", "late p50", "late p99", "ratio of p99", "late p99.9"}
	case w.Trickle():
		columns = []string{"sent", "p50", "p99", "ratio of p99", "p99.9"}
	case w.Backlog():
		columns = []string{"messages", "in /s", "out /s", "ratio of out"}
	}
	columns = append(columns, "CPU server, client", "memory")
	fmt.Fprintf(b, "| | %s | |\n| --- |%s --- |\n", strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)))
	for i := range p.Peers {
		x := &p.Peers[i]
		r := p.row(w, x.Name)
		var cells []string
		switch {
		case r == nil:
			cells = append(make([]string, len(columns)), "not run in this series")
		case r.Runs == 0:
			cells = append(make([]string, len(columns)), r.Status)
		default:
			cells = append(figures(w, r), "CPU", "memory", "note")
			cells[len(cells)-3] = fmt.Sprintf("%s, %s", cpu(r.ServerCPU), cpu(r.ClientCPU))
			cells[len(cells)-2] = fmt.Sprintf("%s (%s)", megabytes(r.Peak), megabytes(r.PeakAnonymous))
			cells[len(cells)-1] = note(w, x, r)
		}
		fmt.Fprintf(b, "| %s | %s |\n", x.Title, strings.Join(cells, " | "))
	}
	b.WriteString("\n")
}

func figures(w *workload.Workload, r *result.Row) []string {
	switch {
	case w.Delay > 0:
		return []string{rates(r.In), duration(r.EndP50.Median), durations(r.EndP99), ratios(r.RatioEnd), duration(r.EndP999.Median)}
	case w.Trickle():
		return []string{count(r.Sent.Median), duration(r.EndP50.Median), durations(r.EndP99), ratios(r.RatioEnd), duration(r.EndP999.Median)}
	case w.Backlog():
		return []string{count(r.Sent.Median), rates(r.In), rates(r.Out), ratios(r.RatioOut)}
	default:
		return []string{rates(r.In), rates(r.Out), ratios(r.RatioOut), duration(r.CallP50.Median) + ", " + duration(r.CallP99.Median)}
	}
}

// note is what a line's reader has to know.
func note(w *workload.Workload, x *peer.Peer, r *result.Row) string {
	var notes []string
	if r.Status != "" {
		notes = append(notes, fmt.Sprintf("only %d runs count; %s", r.Runs, r.Status))
	}
	if n := r.Twice.Most; n > 0 {
		notes = append(notes, fmt.Sprintf("up to %s came twice", count(n)))
	}
	if n := x.Notes[w.Name]; n != "" {
		notes = append(notes, n)
	}
	return strings.Join(notes, "; ")
}

func (p *Page) how(b *strings.Builder) {
	runs := 0
	for i := range p.Rows {
		runs = max(runs, p.Rows[i].Runs)
	}
	fmt.Fprintf(b, `## How it was measured

- In rounds, %d of them: each round runs every system once for a workload, and begins with another one. A ratio is of two
  runs of one round. Figures are medians, with the least and the most in brackets.
- Each run starts the server anew on an empty folder and a client that has done nothing before, warms both up with
  the same load for two seconds (but for a backlog), and then counts. Sending ends by count or by time, whichever is first.
- *in* is messages that were acknowledged, *in and out* those that were also received and acknowledged by every group, over
  the time until the last. A send is what a sender hands over at once; some systems need several calls for it.
- *latency* sends at a fixed rate whatever becomes of the messages before, and counts from when a message was due: a
  system that stalls cannot hide it. *late* is how long after its delay a message came.
- Every body has a number and a checksum. A run that loses a message, damages one, or gives one out before its delay is
  over is not counted, and its line says so. Some systems may deliver a message twice, and the line says how many.
- CPU is seconds for a million messages, of the server's processes and of the client, user and system. Memory is the
  server's at its peak, MB resident, and in brackets without files that are mapped into memory.

## Again

`+"```sh"+`
tools/peers                     # installs the other systems, pinned, into .tools/peers: Go, and Java with Maven
make bench-peers                # all runs, 40 to 50 minutes on two cores; goes on where it was cut off
make bench-peers PAIRS=1 SCALE=0.2 PEERS=spillway,nats-sync WORKLOADS=batch,single   # a look
make bench-peers PAIRS=1 WORKLOADS=backlog-10m PEERS=spillway,nats-sync,kafka-flush  # the backlog of 10 million
make bench-page                 # this page, its plots and medians, from the runs
`+"```"+`

The medians are in [bench/medians.jsonl](bench/medians.jsonl), one line for each system and workload.
`, runs)
}

// times writes a ratio.
func times(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f×", v)
	}
	return fmt.Sprintf("%.2g×", v)
}

func ratios(s result.Spread) string {
	if s.Median == 0 {
		return ""
	}
	return spreadText(s, times)
}

func spreadText(s result.Spread, text func(float64) string) string {
	if text(s.Least) == text(s.Most) {
		return text(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", text(s.Median), text(s.Least), text(s.Most))
}

func rates(s result.Spread) string     { return spreadText(s, count) }
func durations(s result.Spread) string { return spreadText(s, duration) }
func megabytes(s result.Spread) string { return fmt.Sprintf("%.0f", s.Median/1e6) }

// cpu writes seconds of processor time.
func cpu(s result.Spread) string {
	if s.Median >= 100 {
		return count(s.Median)
	}
	return fmt.Sprintf("%.2g", s.Median)
}

func duration(seconds float64) string {
	switch d := time.Duration(seconds * float64(time.Second)); {
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", seconds)
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", seconds*1000)
	default:
		return fmt.Sprintf("%.1f ms", seconds*1000)
	}
}

// count writes a number with commas, below 100 with a digit more.
func count(v float64) string {
	if v < 100 && v != float64(int64(v)) {
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
