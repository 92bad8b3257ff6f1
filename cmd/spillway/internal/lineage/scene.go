package lineage

// scene is a picture as shapes, from the back to the front. Lengths are in pixels, from the upper left.
type scene struct {
	title  string
	shapes []shape
}

// shape is one of a rectangle, a dot and a text.
type shape struct {
	kind kind
	// box is a rectangle; of a text x and its baseline; of a dot its middle, and the radius as w.
	box
	paint
	style
	text string
}

type box struct{ x, y, w, h float64 }

// paint is how a rectangle or a dot is filled and edged. Colours are "#rrggbb"; "" for none.
type paint struct {
	fill string
	// stroke is drawn inside the edge, line wide.
	stroke string
	line   float64
}

// style is how a text is written.
type style struct {
	size   float64
	fill   string
	weight weight
	anchor anchor
}

type kind int

const (
	rectangle kind = iota
	disc
	words
)

type weight int

const (
	plain weight = iota
	bold
)

// anchor is which part of a text is at its x.
type anchor int

const (
	start anchor = iota
	middleOf
	end
)

func (s *scene) rect(b box, p paint) {
	s.shapes = append(s.shapes, shape{kind: rectangle, box: b, paint: p})
}

func (s *scene) dot(x, y, radius float64, fill, stroke string) {
	s.shapes = append(s.shapes, shape{kind: disc, box: box{x: x, y: y, w: radius}, paint: paint{fill, stroke, 2}})
}

func (s *scene) text(x, y float64, st style, text string) {
	s.shapes = append(s.shapes, shape{kind: words, box: box{x: x, y: y}, style: st, text: text})
}
