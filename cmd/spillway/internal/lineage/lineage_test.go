package lineage_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/lineage"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

var update = flag.Bool("update", false, "write the golden files anew")

func began() time.Time { return time.Date(2026, 3, 1, 23, 40, 0, 0, time.UTC) }

// history is a flood that comes and goes: splits, a hot slot, merges; some segments are still open.
func history() *lineage.History {
	h := &lineage.History{
		Topic: "shop.orders", Hot: map[queue.SegmentID]bool{}, To: began().Add(50 * time.Minute),
		Policy: client.Policy{MinSegments: 1, MaxSegments: 256, TargetMessagesPerSecond: 5000, TargetBytesPerSecond: 5 << 20},
	}
	add := func(lo, hi uint32, from, to, score float64) *client.Segment {
		at := func(minutes float64) wire.Time {
			return wire.Time(queue.MillisOf(began().Add(time.Duration(minutes * float64(time.Minute)))))
		}
		s := &client.Segment{
			ID: queue.SegmentID(fmt.Sprintf("%016d", len(h.Segments)+1)), Range: queue.SlotRange{Lo: lo, Hi: hi},
			State: "sealed", CreatedAt: at(from), SealedAt: at(to), Mean: wire.Rate{Score: score, MessagesPerSecond: 5000 * score},
		}
		if to == 0 {
			s.State, s.SealedAt = "open", 0
		}
		h.Segments = append(h.Segments, s)
		return s
	}
	const q = queue.Slots / 4
	add(0, queue.Slots, 0, 8, 0.6)
	add(0, 2*q, 8, 12, 2.4)
	add(2*q, queue.Slots, 8, 10, 6.5)
	add(2*q, 3*q, 10, 20, 1.4)
	add(3*q, queue.Slots, 10, 14, 5.2)
	add(0, q, 12, 34, 0.9)
	add(q, 2*q, 12, 34, 0.3)
	add(3*q, 3*q+9000, 14, 24, 1.1)
	hot := add(3*q+9000, 3*q+9001, 14, 0, 3.1)
	hot.Load = &wire.SegmentLoad{Score: 3.4, Hot: true, Last: wire.Rate{MessagesPerSecond: 17_000}}
	add(3*q+9001, queue.Slots, 14, 0, 0.2)
	add(2*q, 2*q+q/2, 20, 30, 0.7)
	add(2*q+q/2, 3*q, 20, 24, 0.8)
	add(2*q+q/2, 3*q+9000, 24, 0, 0.15)
	add(2*q, 2*q+q/2, 30, 0, 0.02)
	last := add(0, 2*q, 34, 0, 0.4)
	last.Load = &wire.SegmentLoad{Score: 1.2, Last: wire.Rate{MessagesPerSecond: 6000}}
	return h
}

func TestGolden(t *testing.T) {
	whole, late := history(), history()
	late.From = began().Add(25 * time.Minute)
	for name, h := range map[string]*lineage.History{
		"flood": whole, "late": late, "empty": {Topic: "empty", To: began()},
	} {
		var got bytes.Buffer
		if err := h.SVG(&got); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, got.Bytes())
		path := filepath.Join("testdata", name+".svg")
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s differs from its golden file (%v); -update writes it anew", name, err)
		}
	}
}

func wellFormed(t *testing.T, svg []byte) {
	t.Helper()
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
}

// TestPNG looks at the colours of some places.
func TestPNG(t *testing.T) {
	var out bytes.Buffer
	h := history()
	if err := h.PNG(&out); err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(&out)
	if err != nil || img.Bounds().Dx() != 2400 || img.Bounds().Dy() != 1380 {
		t.Fatalf("%v, %v", img.Bounds(), err)
	}
	at := func(minutes float64, slot int) color.Color {
		return img.At(2*int(84+minutes*(1000-84)/50), 2*int(614-float64(slot)*(614-96)/queue.Slots))
	}
	for _, c := range []struct {
		minutes float64
		slot    int
		want    color.RGBA
	}{
		{1, 60000, color.RGBA{0x5b, 0xa3, 0xcf, 0xff}},    // 0.6
		{9, 60000, color.RGBA{0xd7, 0x30, 0x1f, 0xff}},    // 6.5
		{13, 1000, color.RGBA{0x5b, 0xa3, 0xcf, 0xff}},    // 0.9
		{36, 1000, color.RGBA{0xfd, 0xd0, 0x8a, 0xff}},    // measured as 1.2, whatever the mean
		{32, 58152, color.RGBA{0x7b, 0x0c, 0x26, 0xff}},   // the hot slot's dot
		{49.9, 30000, color.RGBA{0x10, 0x2a, 0x43, 0xff}}, // open
	} {
		if got := at(c.minutes, c.slot); got != c.want {
			t.Errorf("minute %v, slot %d is %v, want %v", c.minutes, c.slot, got, c.want)
		}
	}
}

// TestHostileHistory draws what no server should say, within the picture.
func TestHostileHistory(t *testing.T) {
	for name, h := range map[string]*lineage.History{
		"nothing": {},
		"ranges":  {Segments: []*client.Segment{{Range: queue.SlotRange{Lo: math.MaxUint32, Hi: 3}}, {Range: queue.SlotRange{Hi: math.MaxUint32}}}},
		"times": {Segments: []*client.Segment{
			{CreatedAt: wire.Time(math.MaxInt64), SealedAt: wire.Time(math.MinInt64), State: "open"},
			{CreatedAt: 1, SealedAt: 253402300799999, Range: queue.Ring()},
		}},
		"text":   {Topic: "</svg><script>\x00\x1b" + strings.Repeat("é", 500), To: began(), Segments: []*client.Segment{{ID: "<&>\"", State: "open", Range: queue.Ring()}}},
		"scores": {To: began(), Segments: []*client.Segment{{Mean: wire.Rate{Score: -1, MessagesPerSecond: -1e300}, Range: queue.Ring()}, {Mean: wire.Rate{Score: 1e300}}}},
		"window": {From: began(), To: began().Add(-time.Hour), Segments: []*client.Segment{{Range: queue.Ring(), CreatedAt: 5}}},
	} {
		var svg, out bytes.Buffer
		if err := errors.Join(h.SVG(&svg), h.PNG(&out)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		wellFormed(t, svg.Bytes())
		if svg.Len() > 64<<10 || strings.Contains(svg.String(), "<script") || strings.Contains(svg.String(), "NaN") || strings.Contains(svg.String(), "Inf") {
			t.Errorf("%s: %d bytes: %.2000s", name, svg.Len(), svg.String())
		}
	}
}
