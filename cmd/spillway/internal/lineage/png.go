package lineage

import (
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strconv"

	"golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// density is how many pixels of a PNG are one of the scene: screens are dense.
const density = 2

func writePNG(w io.Writer, s *scene) error {
	c := &canvas{img: image.NewRGBA(image.Rect(0, 0, width*density, height*density)), faces: make(map[face]font.Face)}
	for i := range s.shapes {
		if err := c.draw(&s.shapes[i]); err != nil {
			return err
		}
	}
	return png.Encode(w, c.img)
}

// canvas draws shapes on an image.
type canvas struct {
	img   *image.RGBA
	faces map[face]font.Face
}

type face struct {
	size   float64
	weight weight
}

func (c *canvas) draw(s *shape) error {
	switch s.kind {
	case rectangle:
		outer := image.Rect(pixel(s.x), pixel(s.y), pixel(s.x+s.w), pixel(s.y+s.h))
		if s.paint.fill != "" {
			c.fill(outer, s.paint.fill)
		}
		if s.stroke == "" {
			return nil
		}
		line := pixel(s.line)
		for _, side := range []image.Rectangle{
			{outer.Min, image.Pt(outer.Max.X, outer.Min.Y+line)},
			{image.Pt(outer.Min.X, outer.Max.Y-line), outer.Max},
			{outer.Min, image.Pt(outer.Min.X+line, outer.Max.Y)},
			{image.Pt(outer.Max.X-line, outer.Min.Y), outer.Max},
		} {
			c.fill(side.Intersect(outer), s.stroke)
		}
	case disc:
		c.disc(s.x, s.y, s.w+s.line/2, s.stroke)
		c.disc(s.x, s.y, s.w-s.line/2, s.paint.fill)
	case words:
		return c.words(s)
	}
	return nil
}

func (c *canvas) fill(r image.Rectangle, colour string) {
	draw.Draw(c.img, r, image.NewUniform(rgb(colour)), image.Point{}, draw.Src)
}

// disc draws a circle as four cubic curves.
func (c *canvas) disc(x, y, radius float64, colour string) {
	const bend = 0.5522847498 // of a curve that is nearly a quarter of a circle
	box := image.Rect(pixel(x-radius)-1, pixel(y-radius)-1, pixel(x+radius)+1, pixel(y+radius)+1)
	z := vector.NewRasterizer(box.Dx(), box.Dy())
	at := func(dx, dy float64) (float32, float32) {
		return float32((x+dx*radius)*density - float64(box.Min.X)), float32((y+dy*radius)*density - float64(box.Min.Y))
	}
	z.MoveTo(at(1, 0))
	for _, q := range [][6]float64{{1, bend, bend, 1, 0, 1}, {-bend, 1, -1, bend, -1, 0}, {-1, -bend, -bend, -1, 0, -1}, {bend, -1, 1, -bend, 1, 0}} {
		bx, by := at(q[0], q[1])
		cx, cy := at(q[2], q[3])
		dx, dy := at(q[4], q[5])
		z.CubeTo(bx, by, cx, cy, dx, dy)
	}
	z.ClosePath()
	z.Draw(c.img, box, image.NewUniform(rgb(colour)), image.Point{})
}

func (c *canvas) words(s *shape) error {
	f, err := c.face(face{s.size, s.weight})
	if err != nil {
		return err
	}
	d := font.Drawer{Dst: c.img, Src: image.NewUniform(rgb(s.style.fill)), Face: f}
	x := fixed.Int26_6(math.Round(s.x * density * 64))
	switch long := d.MeasureString(s.text); s.anchor {
	case start:
	case middleOf:
		x -= long / 2
	case end:
		x -= long
	}
	d.Dot = fixed.Point26_6{X: x, Y: fixed.Int26_6(math.Round(s.y * density * 64))}
	d.DrawString(s.text)
	return nil
}

func (c *canvas) face(k face) (font.Face, error) {
	if f := c.faces[k]; f != nil {
		return f, nil
	}
	ttf := goregular.TTF
	if k.weight == bold {
		ttf = gobold.TTF
	}
	parsed, err := opentype.Parse(ttf)
	if err != nil {
		return nil, fmt.Errorf("font: %w", err)
	}
	f, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: k.size * density, DPI: 72, Hinting: font.HintingNone})
	if err != nil {
		return nil, fmt.Errorf("font: %w", err)
	}
	c.faces[k] = f
	return f, nil
}

func pixel(f float64) int { return int(math.Round(f * density)) }

// rgb reads "#rrggbb".
func rgb(text string) color.RGBA {
	n, err := strconv.ParseUint(text[1:], 16, 32)
	if err != nil {
		return color.RGBA{A: 0xff}
	}
	return color.RGBA{uint8(n >> 16), uint8(n >> 8), uint8(n), 0xff} // #nosec G115 -- its bytes
}
