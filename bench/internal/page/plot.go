package page

import (
	"fmt"
	"math"
	"strings"

	"github.com/spillway-mq/spillway/bench/internal/result"
	"github.com/spillway-mq/spillway/bench/internal/workload"
)

// The plots' frame, in pixels.
const (
	plotWidth            = 800
	plotLeft, plotRight  = 235, 90
	panelHead, panelFoot = 26, 30
	lineHeight           = 18
)

// series is a colour's points in a panel, such as p99.
type series struct {
	colour string
	of     func(*result.Row) result.Spread
}

// plot is one picture: a panel for each workload, a line for each peer, a dot at the median on a logarithmic axis and a
// stroke from least to most.
type plot struct {
	page   *Page
	series []series
	// text writes a value, tick one at the axis.
	text, tick func(float64) string
	b          strings.Builder
	y          int
}

// Rates draws messages in and out a second.
func (p *Page) Rates() string {
	out := series{"#1b6ca8", func(r *result.Row) result.Spread { return r.Out }}
	plot := plot{page: p, series: []series{out}, text: count, tick: count}
	return plot.draw("messages a second, in and out", func(w *workload.Workload) bool { return !w.Trickle() })
}

// Times draws p50, p99 and p99.9 end to end.
func (p *Page) Times() string {
	plot := plot{page: p, series: []series{
		{"#2a9d5c", func(r *result.Row) result.Spread { return r.EndP50 }},
		{"#c77d0a", func(r *result.Row) result.Spread { return r.EndP999 }},
		{"#1b6ca8", func(r *result.Row) result.Spread { return r.EndP99 }},
	}, text: duration, tick: duration}
	return plot.draw("until a message has arrived: p50 green, p99 blue with its value, p99.9 orange", (*workload.Workload).Trickle)
}

func (l *plot) draw(title string, take func(*workload.Workload) bool) string {
	l.y = 28
	fmt.Fprintf(&l.b, "<text x=\"10\" y=\"18\" font-size=\"13\">%s; a stroke: least to most</text>\n", title)
	for _, w := range l.page.shown() {
		if take(w) {
			l.panel(w)
		}
	}
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"+
		"<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n%s</svg>\n", plotWidth, l.y, plotWidth, l.y, l.b.String())
}

// bounds are the decades that a panel's values lie in.
func (l *plot) bounds(w *workload.Workload) (low, high int) {
	least, most := math.Inf(1), math.Inf(-1)
	for i := range l.page.Peers {
		r := l.page.row(w, l.page.Peers[i].Name)
		if r == nil {
			continue
		}
		for _, s := range l.series {
			if v := s.of(r); v.Median > 0 {
				least, most = min(least, max(v.Least, 1e-6)), max(most, v.Most)
			}
		}
	}
	if math.IsInf(least, 1) {
		return 0, 1
	}
	low = int(math.Floor(math.Log10(least)))
	return low, max(low+1, int(math.Ceil(math.Log10(most))))
}

func (l *plot) panel(w *workload.Workload) {
	low, high := l.bounds(w)
	x := func(v float64) float64 {
		at := (math.Log10(max(v, math.Pow10(low))) - float64(low)) / float64(high-low)
		return plotLeft + at*(plotWidth-plotLeft-plotRight)
	}
	top := l.y + panelHead
	foot := top + lineHeight*len(l.page.Peers)
	fmt.Fprintf(&l.b, "<text x=\"10\" y=\"%d\" font-weight=\"bold\">%s: %s</text>\n", l.y+16, w.Name, w.Title)
	for decade := low; decade <= high; decade++ {
		v := math.Pow10(decade)
		fmt.Fprintf(&l.b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n", x(v), top, x(v), foot)
		fmt.Fprintf(&l.b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%s</text>\n", x(v), foot+14, l.tick(v))
	}
	for i := range l.page.Peers {
		l.line(w, i, top+lineHeight*i+lineHeight/2, x)
	}
	l.y = foot + panelFoot
}

// line draws one peer's.
func (l *plot) line(w *workload.Workload, i, y int, x func(float64) float64) {
	p := &l.page.Peers[i]
	weight := ""
	if i == 0 {
		weight = " font-weight=\"bold\""
	}
	fmt.Fprintf(&l.b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\"%s>%s</text>\n", plotLeft-8, y+4, weight, p.Title)
	r := l.page.row(w, p.Name)
	if r == nil || r.Runs == 0 {
		fmt.Fprintf(&l.b, "<text x=\"%d\" y=\"%d\" fill=\"#777\">%s</text>\n", plotLeft+6, y+4, l.page.short(w, p))
		return
	}
	var last result.Spread
	for _, s := range l.series {
		last = s.of(r)
		fmt.Fprintf(&l.b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"/>\n", x(last.Least), y, x(last.Most), y, s.colour)
		fmt.Fprintf(&l.b, "<circle cx=\"%.1f\" cy=\"%d\" r=\"4\" fill=\"%s\"/>\n", x(last.Median), y, s.colour)
	}
	fmt.Fprintf(&l.b, "<text x=\"%d\" y=\"%d\" fill=\"#333\">%s</text>\n", plotWidth-plotRight+8, y+4, l.text(last.Median))
}
