package flood_test

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// table renders the curve: every window while something changes, else one in five minutes.
func (r *run) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8s %9s %9s %9s %9s %9s %9s\n", "time", "offered/s", "acked/s", "p50 ms", "p99 ms", "segments", "throttled")
	per := r.plan.window.Seconds()
	each := max(1, int(5*time.Minute/r.plan.window))
	for i, w := range r.curve {
		still := i > 0 && w.segments == r.curve[i-1].segments && w.throttles == 0 && r.curve[i-1].throttles == 0
		if still && (i+1)%each != 0 {
			continue
		}
		fmt.Fprintf(&b, "%8s %9.0f %9.0f %9.1f %9.1f %9d %9d\n", w.at, float64(w.offered)/per, float64(w.acked)/per,
			ms(w.p50), ms(w.p99), w.segments, w.throttles)
	}
	return b.String()
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// panel is one diagram of the plot: lines over the same time.
type panel struct {
	title string
	// low and high bound the values; the scale is logarithmic.
	low, high float64
	marks     []float64
	lines     []line
}

type line struct {
	name, color string
	of          func(*window) float64
}

const (
	plotWidth, panelHeight = 900, 190
	plotLeft, plotRight    = 70, 20
	plotTop, plotGap       = 46, 44
)

// plot draws the curve as SVG: three diagrams, one above the other.
func (r *run) plot() string {
	per := r.plan.window.Seconds()
	panels := []panel{
		{"messages a second", 10, 1e6, []float64{10, 1e2, 1e3, 1e4, 1e5, 1e6}, []line{
			{"offered", "#999999", func(w *window) float64 { return float64(w.offered) / per }},
			{"acknowledged", "#0066cc", func(w *window) float64 { return float64(w.acked) / per }},
		}},
		{"latency, ms", 1, 1e5, []float64{1, 10, 1e2, 1e3, 1e4, 1e5}, []line{
			{"p50", "#2e8b57", func(w *window) float64 { return ms(w.p50) }},
			{"p99", "#cc3311", func(w *window) float64 { return ms(w.p99) }},
		}},
		{"segments; calls throttled a second", 1, 1e4, []float64{1, 10, 1e2, 1e3, 1e4}, []line{
			{"throttled", "#ddaa33", func(w *window) float64 { return float64(w.throttles) / per }},
			{"segments", "#222222", func(w *window) float64 { return float64(w.segments) }},
		}},
	}
	var b strings.Builder
	height := plotTop + len(panels)*(panelHeight+plotGap)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, height)
	calm, flood := r.plan.offered()
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="14">%d messages/s for %v, %d/s for %v, then none; simulated store, %.0f write units/s for each partition key</text>`+"\n",
		plotLeft, calm, r.plan.calm, flood, r.plan.flood, r.plan.limit)
	for i := range panels {
		r.draw(&b, &panels[i], plotTop+i*(panelHeight+plotGap))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws one panel with its upper edge at top.
func (r *run) draw(b *strings.Builder, p *panel, top int) {
	end := r.curve[len(r.curve)-1].at
	x := func(at time.Duration) float64 {
		return plotLeft + float64(at)/float64(end)*(plotWidth-plotLeft-plotRight)
	}
	y := func(v float64) float64 {
		part := math.Log(min(max(v, p.low), p.high)/p.low) / math.Log(p.high/p.low)
		return float64(top) + 14 + (1-part)*(panelHeight-14)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", plotLeft, top+6, p.title)
	for _, v := range p.marks {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#dddddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			plotLeft, y(v), plotWidth-plotRight, plotLeft-6, y(v)+4, v)
	}
	const minutes = 10
	for at := time.Duration(0); at <= end; at += minutes * time.Minute {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f min</text>`+"\n", x(at), top+panelHeight+16, at.Minutes())
	}
	for i, l := range p.lines {
		fmt.Fprintf(b, `<text x="%d" y="%d" fill="%s" text-anchor="end">%s</text>`+"\n", plotWidth-plotRight-90*i, top+6, l.color, l.name)
		fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.5" d="`, l.color)
		pen := "M"
		for _, w := range r.curve {
			v := l.of(w)
			if v <= 0 {
				pen = "M"
				continue
			}
			fmt.Fprintf(b, "%s%.1f %.1f", pen, x(w.at), y(v))
			pen = "L"
		}
		b.WriteString("\"/>\n")
	}
}
