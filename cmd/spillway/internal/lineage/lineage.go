// Package lineage draws how a topic's segments followed its load: time from left to right, the ring of
// 65,536 slots from bottom to top, and each segment a rectangle over the slots that it owned and the time
// that it was open, in the colour of its load.
//
// Vocabulary: a scene is the picture as shapes; a band is a range of scores that has one colour.
//
// Invariants: the same history gives the same bytes, on every machine; what a server says is drawn
// somewhere within the picture, whatever it says.
//
// Non-goals: asking a server, files.
package lineage

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// History is what a picture shows.
type History struct {
	Topic    string
	Policy   client.Policy
	Segments []*client.Segment
	// Hot are the segments that were found hot at some time; one whose load says so is hot, too.
	Hot map[queue.SegmentID]bool
	// From and To bound the time that is shown. The zero From is the first segment's creation.
	From, To time.Time
}

// SVG writes the picture as an SVG document.
func (h *History) SVG(w io.Writer) error { return writeSVG(w, h.scene()) }

// PNG writes the picture as a PNG of twice its size in pixels.
func (h *History) PNG(w io.Writer) error { return writePNG(w, h.scene()) }

// The picture's size and the place of the plot in it.
const (
	width, height = 1200.0, 690.0
	left, right   = 84.0, 1000.0
	top, bottom   = 96.0, 614.0
)

// Colours. The grey ones are text and lines.
const (
	white     = "#ffffff"
	ink       = "#1f2933"
	muted     = "#616e7c"
	rule      = "#d9e2ec"
	backdrop  = "#f5f7fa"
	hotColour = "#7b0c26"
	openEdge  = "#102a43"
)

// band is a range of scores, up to but not including below.
type band struct {
	below  float64 // 0 for no end
	fill   string
	onFill string // text on it
	label  string
}

// bands are blue up to what a segment should carry, and go to red beyond.
func bands() []band {
	return []band{
		{0.05, "#eaf2f9", ink, "below 0.05"},
		{0.25, "#cfe1f2", ink, "0.05 – 0.25"},
		{0.5, "#9ecae1", ink, "0.25 – 0.5"},
		{1, "#5ba3cf", white, "0.5 – 1"},
		{2, "#fdd08a", ink, "1 – 2"},
		{5, "#f98e52", ink, "2 – 5"},
		{0, "#d7301f", white, "5 and more"},
	}
}

func bandOf(score float64) band {
	all := bands()
	for _, b := range all {
		if score < b.below {
			return b
		}
	}
	return all[len(all)-1]
}

// view maps a history to the plot.
type view struct {
	*History
	from, to time.Time
}

func (h *History) scene() *scene {
	s := &scene{title: "segments of topic " + h.Topic}
	v := view{History: h, from: h.From, to: h.To}
	segments := slices.Clone(h.Segments)
	slices.SortStableFunc(segments, func(a, b *client.Segment) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.Range.Lo, b.Range.Lo), cmp.Compare(a.ID, b.ID))
	})
	for _, seg := range segments {
		if created, ok := instant(seg.CreatedAt); ok {
			if h.From.IsZero() && (v.from.IsZero() || created.Before(v.from)) {
				v.from = created
			}
			v.reach(created)
		}
		if sealed, ok := instant(seg.SealedAt); ok {
			v.reach(sealed)
		}
	}
	if v.from.IsZero() || !v.to.After(v.from) {
		v.from = v.to.Add(-time.Second)
	}
	s.rect(box{0, 0, width, height}, paint{fill: white})
	v.head(s)
	s.rect(box{left, top, right - left, bottom - top}, paint{fill: backdrop})
	v.slotAxis(s)
	v.timeAxis(s)
	var hot []*client.Segment
	for _, seg := range segments {
		if v.hot(seg) {
			hot = append(hot, seg) // last, so that its neighbours do not cover one slot
			continue
		}
		v.segment(s, seg)
	}
	for _, seg := range hot {
		if !v.segment(s, seg) {
			continue
		}
		r := v.place(seg)
		s.dot(r.x+r.w/2, r.y+r.h/2, 6, hotColour, white)
	}
	s.rect(box{left, top, right - left, bottom - top}, paint{stroke: muted, line: 1})
	v.legend(s)
	return s
}

// reach moves the end to what a server says that has happened: its clock may be ahead of ours.
func (v *view) reach(t time.Time) {
	if t.After(v.to) {
		v.to = t
	}
}

// instant is a time that can be drawn; false for none, and for one that is no date.
func instant(t wire.Time) (time.Time, bool) {
	const last = 253402300799999 // of the year 9999
	return t.Millis().Time(), t > 0 && t <= last
}

func (v *view) hot(seg *client.Segment) bool { return v.Hot[seg.ID] || seg.Load != nil && seg.Load.Hot }

// head is the title and what is set for the topic.
func (v *view) head(s *scene) {
	open := 0
	for _, seg := range v.Segments {
		if seg.State == "open" {
			open++
		}
	}
	const longest = 70 // characters that fit
	s.text(left, 38, style{size: 22, fill: ink, weight: bold}, shorten(v.Topic, longest))
	p := v.Policy
	s.text(left, 62, style{size: 13, fill: muted}, fmt.Sprintf("%s open and %s sealed segments  ·  %s to %s may be open, each for %s messages/s or %s/s",
		units.Group(int64(open)), units.Group(int64(len(v.Segments)-open)), units.Group(int64(p.MinSegments)), units.Group(int64(p.MaxSegments)),
		units.Group(p.TargetMessagesPerSecond), units.FormatBytes(float64(p.TargetBytesPerSecond))))
}

func shorten(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// score is the colour's: the load of a segment that is watched, and of any other the mean of its life.
func score(seg *client.Segment) float64 {
	if seg.Load != nil {
		return seg.Load.Score
	}
	return seg.Mean.Score
}

// place is the rectangle of a segment, within the plot.
func (v *view) place(seg *client.Segment) box {
	x0, x1 := left, right
	if created, ok := instant(seg.CreatedAt); ok {
		x0 = v.x(created)
	}
	if sealed, ok := instant(seg.SealedAt); ok {
		x1 = v.x(sealed)
	}
	y0, y1 := y(min(seg.Range.Hi, queue.Slots)), y(min(seg.Range.Lo, queue.Slots))
	const thin = 2 // what one slot or a moment is drawn as
	if x1 < x0+thin {
		x0 = min(x0, right-thin)
		x1 = x0 + thin
	}
	if y1 < y0+thin {
		y0 = max(top, min(y0, bottom-thin))
		y1 = y0 + thin
	}
	return box{x0, y0, x1 - x0, y1 - y0}
}

// x is where a time lies, at the plot's edges if it is outside.
func (v *view) x(t time.Time) float64 {
	part := float64(t.Sub(v.from)) / float64(v.to.Sub(v.from))
	return left + float64(max(0, min(1, part))*(right-left))
}

// y is where a slot lies.
func y(slot uint32) float64 { return bottom - float64(float64(slot)*(bottom-top)/queue.Slots) }

// segment draws one; it reports false for one that had ended before the time that is shown.
func (v *view) segment(s *scene, seg *client.Segment) bool {
	if sealed, ok := instant(seg.SealedAt); ok && sealed.Before(v.from) {
		return false
	}
	r := v.place(seg)
	b := bandOf(score(seg))
	p := paint{fill: b.fill}
	if r.w >= 4 && r.h >= 4 { // else there is no room for an edge
		p.stroke, p.line = white, 1
	}
	edge := p.line
	if v.hot(seg) {
		p.stroke, p.line = hotColour, 2
	}
	s.rect(r, p)
	if seg.State == "open" {
		s.rect(box{r.x + r.w - 4, r.y + edge, 4, max(1, r.h-2*edge)}, paint{fill: openEdge})
	}
	if !v.hot(seg) { // whose dot is there
		label(s, seg, b, r)
	}
	return true
}

// label writes on a rectangle what fits.
func label(s *scene, seg *client.Segment, b band, r box) {
	const line, wide, narrow = 15.0, 150.0, 62.0
	middle := r.y + r.h/2
	perSecond := seg.Mean.MessagesPerSecond
	if seg.Load != nil {
		perSecond = seg.Load.Last.MessagesPerSecond
	}
	load := units.FormatCount(perSecond) + "/s"
	switch {
	case r.w >= wide && r.h >= 2.6*line:
		s.text(r.x+8, middle-3, style{size: 12, fill: b.onFill, weight: bold}, string(seg.ID))
		s.text(r.x+8, middle+line-2, style{size: 12, fill: b.onFill}, fmt.Sprintf("%s  ·  load %.2f", load, score(seg)))
	case r.w >= narrow && r.h >= 1.1*line:
		s.text(r.x+r.w/2, middle+4, style{size: 11, fill: b.onFill, anchor: middleOf}, load)
	}
}

// legend explains colours and marks, on the right.
func (v *view) legend(s *scene) {
	const x, swatch, line = right + 34, 18.0, 24.0
	at := top + 12.0
	s.text(x, at, style{size: 13, fill: ink, weight: bold}, "Load")
	s.text(x, at+18, style{size: 11, fill: muted}, "1 is what one segment")
	s.text(x, at+32, style{size: 11, fill: muted}, "should carry")
	at += 48
	all := bands()
	for i := len(all) - 1; i >= 0; i-- {
		s.rect(box{x, at, swatch, swatch}, paint{fill: all[i].fill, stroke: rule, line: 1})
		s.text(x+swatch+10, at+13, style{size: 12, fill: ink}, all[i].label)
		at += line
	}
	at += 22
	s.text(x, at, style{size: 13, fill: ink, weight: bold}, "Marks")
	at += 14
	s.rect(box{x, at, swatch, swatch}, paint{fill: "#cfe1f2", stroke: rule, line: 1})
	s.rect(box{x + swatch - 4, at, 4, swatch}, paint{fill: openEdge})
	s.text(x+swatch+10, at+13, style{size: 12, fill: ink}, "open")
	at += line
	s.rect(box{x, at, swatch, swatch}, paint{fill: "#f98e52", stroke: hotColour, line: 2})
	s.dot(x+swatch/2, at+swatch/2, 6, hotColour, white)
	s.text(x+swatch+10, at+13, style{size: 12, fill: ink}, "hot: most of it is")
	s.text(x+swatch+10, at+27, style{size: 12, fill: ink}, "of one slot")
}
