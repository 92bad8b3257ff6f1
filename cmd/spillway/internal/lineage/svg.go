package lineage

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
)

func writeSVG(w io.Writer, s *scene) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" role="img" font-family="Go, 'Helvetica Neue', Arial, sans-serif">`+"\n",
		number(width), number(height), number(width), number(height))
	fmt.Fprintf(&b, "<title>%s</title>\n", escaped(s.title))
	for i := range s.shapes {
		s.shapes[i].svg(&b)
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

func (s *shape) svg(b *bytes.Buffer) {
	fill := s.paint.fill
	if s.kind == words {
		fill = s.style.fill
	}
	if fill == "" {
		fill = "none"
	}
	switch s.kind {
	case rectangle:
		x, y, w, h := s.x, s.y, s.w, s.h
		if s.stroke != "" { // SVG strokes on both sides of an edge
			x, y, w, h = x+s.line/2, y+s.line/2, max(0, w-s.line), max(0, h-s.line)
		}
		fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" fill="%s"`, number(x), number(y), number(w), number(h), fill)
	case disc:
		fmt.Fprintf(b, `<circle cx="%s" cy="%s" r="%s" fill="%s"`, number(s.x), number(s.y), number(s.w), fill)
	case words:
		fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" fill="%s"`, number(s.x), number(s.y), number(s.size), fill)
		if s.weight == bold {
			b.WriteString(` font-weight="bold"`)
		}
		if s.anchor != start {
			fmt.Fprintf(b, ` text-anchor="%s"`, map[anchor]string{middleOf: "middle", end: "end"}[s.anchor])
		}
		fmt.Fprintf(b, ">%s</text>\n", escaped(s.text))
		return
	}
	if s.stroke != "" {
		fmt.Fprintf(b, ` stroke="%s" stroke-width="%s"`, s.stroke, number(s.line))
	}
	b.WriteString("/>\n")
}

// number rounds to tenths of a pixel, so that the last bit of a sum does not show.
func number(f float64) string {
	text := strconv.FormatFloat(f, 'f', 1, 64)
	if n := len(text) - 2; text[n:] == ".0" {
		return text[:n]
	}
	return text
}

// escaped makes text safe within an element; characters that XML does not have are replaced.
func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes all
	return b.String()
}
