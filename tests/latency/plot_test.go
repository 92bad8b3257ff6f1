package latency_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// The plot's frame, in pixels, and its ranges: batches of 1 to 1,000, and 5 to 500 ms.
const (
	plotWidth, plotHeight                  = 720, 420
	plotLeft, plotRight, plotTop, plotFoot = 60, 190, 30, 50
	plotLeast, plotMost, plotBatch         = 5.0, 500.0, 1000.0
	plotLine                               = 14
)

func plotX(batch float64) float64 {
	return plotLeft + math.Log(batch)/math.Log(plotBatch)*(plotWidth-plotLeft-plotRight)
}

func plotY(took time.Duration) float64 {
	v := float64(took) / float64(time.Millisecond)
	return plotHeight - plotFoot - math.Log(v/plotLeast)/math.Log(plotMost/plotLeast)*(plotHeight-plotTop-plotFoot)
}

// plot draws produce latency by batch size, as SVG: p50 drawn through, p90 dashed.
func (s *study) plot() string {
	var b strings.Builder
	text := func(x, y float64, anchor, color, words string) {
		fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y, anchor, color, words)
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", plotWidth, plotHeight)
	text(plotLeft, 18, "start", "#222222", "produce, ms to the acknowledgement; p50 drawn through, p90 dashed")
	for _, v := range []int{5, 10, 20, 50, 100, 200, 500} {
		y := plotY(time.Duration(v) * time.Millisecond)
		fmt.Fprintf(&b, "<path d=\"M%d %.1fH%d\" stroke=\"#dddddd\"/>\n", plotLeft, y, plotWidth-plotRight)
		text(plotLeft-6, y+4, "end", "#222222", fmt.Sprint(v))
	}
	for _, n := range []int{1, 5, 10, 100, 1000} {
		x := plotX(float64(n))
		fmt.Fprintf(&b, "<path d=\"M%.1f %dV%d\" stroke=\"#dddddd\"/>\n", x, plotTop, plotHeight-plotFoot)
		text(x, plotHeight-plotFoot+18, "middle", "#222222", fmt.Sprint(n))
	}
	text((plotLeft+plotWidth-plotRight)/2, plotHeight-12, "middle", "#222222", "messages of 1 KB a call")
	labels := []label{curve(&b, "DynamoDB (up to 8 KB)", "#222222", inlineBatches(), s.inline)}
	for i, st := range stores() {
		labels = append(labels, curve(&b, st.name, st.color, largeBatches(), s.large[i]))
	}
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	for i, l := range labels {
		if i > 0 {
			// None covers another.
			labels[i].y = max(l.y, labels[i-1].y+plotLine)
		}
		text(l.x, labels[i].y, "start", l.color, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// label names a curve at its end.
type label struct {
	x, y        float64
	name, color string
}

// curve draws the percentiles of one way to store bytes, and gives its label.
func curve(b *strings.Builder, name, color string, batches []int, of map[int]outcome) label {
	for _, p := range []struct {
		at   float64
		dash string
	}{{0.5, ""}, {0.9, " stroke-dasharray=\"5 4\""}} {
		fmt.Fprintf(b, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s d=\"", color, p.dash)
		pen := "M"
		for _, n := range batches {
			fmt.Fprintf(b, "%s%.1f %.1f", pen, plotX(float64(n)), plotY(of[n].acknowledged.at(p.at)))
			pen = "L"
		}
		b.WriteString("\"/>\n")
	}
	last := batches[len(batches)-1]
	return label{plotX(float64(last)) + 6, plotY(of[last].acknowledged.at(0.5)) + 4, name, color}
}
