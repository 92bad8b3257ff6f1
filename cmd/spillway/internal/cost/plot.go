package cost

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// The plot's frame, in pixels, and its ranges: batches of 1 to 1,000, and dollars of 10^-3 to 10^2.
const (
	plotWidth, plotHeight                  = 720, 440
	plotLeft, plotRight, plotTop, plotFoot = 70, 150, 30, 50
	plotDecadesX, plotDecadesY             = 3, 5
	plotLeast                              = 0.001
	plotLine                               = 13
)

func plotX(batch float64) float64 {
	return plotLeft + math.Log10(batch)/plotDecadesX*(plotWidth-plotLeft-plotRight)
}

func plotY(usd float64) float64 {
	at := math.Log10(usd/plotLeast) / plotDecadesY
	return plotHeight - plotFoot - at*(plotHeight-plotTop-plotFoot)
}

// label names a curve at its end.
type label struct {
	at           float64
	name, colour string
}

// apart moves labels down until none covers another.
func apart(labels []label) []label {
	slices.SortFunc(labels, func(a, b label) int { return cmp.Compare(a.at, b.at) })
	for i := range labels[1:] {
		labels[i+1].at = max(labels[i+1].at, labels[i].at+plotLine)
	}
	return labels
}

// plot draws the cost of a million messages by batch size, Spillway's for each size and SQS's for 1 KB, as
// SVG.
func (s *study) plot() string {
	var b strings.Builder
	text := func(x, y float64, anchor, style, words string) {
		fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"%s\" %s>%s</text>\n", x, y, anchor, style, words)
	}
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n", plotWidth, plotHeight)
	for i := range plotDecadesX + 1 {
		batch := math.Pow10(i)
		fmt.Fprintf(&b, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n", plotX(batch), plotTop, plotX(batch), plotHeight-plotFoot)
		text(plotX(batch), plotHeight-plotFoot+18, "middle", "", fmt.Sprintf("%.0f", batch))
	}
	for i := range plotDecadesY + 1 {
		usd := plotLeast * math.Pow10(i)
		fmt.Fprintf(&b, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", plotLeft, plotY(usd), plotWidth-plotRight, plotY(usd))
		text(plotLeft-8, plotY(usd)+4, "end", "", fmt.Sprintf("$%g", usd))
	}
	text(plotX(math.Pow(10, plotDecadesX/2.0)), plotHeight-10, "middle", "", "messages a batch")
	text(plotLeft, plotTop-12, "start", "", "US dollars for a million messages, produced and consumed once")
	var labels []label
	curve := func(name, colour, dash string, of func(*Bill) float64, size int) {
		var points []string
		var last float64
		for _, batch := range plotBatches() {
			last = plotY(of(s.bills[size][batch]))
			points = append(points, fmt.Sprintf("%.1f,%.1f", plotX(float64(batch)), last))
		}
		fmt.Fprintf(&b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", strings.Join(points, " "), colour, dash)
		labels = append(labels, label{at: last, name: name, colour: colour})
	}
	colours := []string{"#1b6ca8", "#2a9d5c", "#c77d0a", "#a8326b"}
	for i, size := range pageSizes() {
		curve("Spillway, "+sizeText(size), colours[i], "", func(x *Bill) float64 { return x.PerMillion }, size)
	}
	curve("SQS, 1 KB", "#555", " stroke-dasharray=\"6 4\"", func(x *Bill) float64 { return x.Rivals[0].PerMillion }, 1000)
	curve("floor", "#999", " stroke-dasharray=\"2 3\"", func(x *Bill) float64 { return x.Floor }, 1000)
	for _, l := range apart(labels) {
		text(plotWidth-plotRight+8, l.at+4, "start", "fill=\""+l.colour+"\"", l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
