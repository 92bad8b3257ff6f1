package lineage

import (
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// slotAxis rules the plot at each eighth of the ring.
func (v *view) slotAxis(s *scene) {
	s.text(left-10, top-14, style{size: 12, fill: ink, weight: bold, anchor: end}, "slot")
	const parts = 8
	for i := range parts + 1 {
		slot := uint32(i) * (queue.Slots / parts)
		at := y(slot)
		s.rect(box{left - 5, at - 0.5, 5, 1}, paint{fill: muted})
		if i > 0 && i < parts {
			s.rect(box{left, at - 0.5, right - left, 1}, paint{fill: rule})
		}
		s.text(left-10, at+4, style{size: 12, fill: muted, anchor: end}, units.Group(int64(slot)))
	}
}

// steps are the distances that ticks of the time axis may have.
func steps() []time.Duration {
	const day = 24 * time.Hour
	return []time.Duration{
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 365 * day, 3650 * day, 36500 * day,
	}
}

// timeAxis rules the plot at round times, in UTC, with the date where it is another than before.
func (v *view) timeAxis(s *scene) {
	const most = 9 // ticks
	span := v.to.Sub(v.from)
	all := steps()
	step := all[len(all)-1]
	for _, d := range all {
		if span/d < most {
			step = d
			break
		}
	}
	format := "15:04"
	switch {
	case step < time.Minute:
		format = "15:04:05"
	case step >= 24*time.Hour:
		format = ""
	}
	date := ""
	t := v.from.UTC().Add(-1).Truncate(step)
	for range 10 * most { // more than there are, whatever the history says
		if t = t.Add(step); t.After(v.to) {
			break
		}
		x := v.x(t)
		s.rect(box{x - 0.5, bottom, 1, 5}, paint{fill: muted})
		s.rect(box{x - 0.5, top, 1, bottom - top}, paint{fill: rule})
		if format != "" {
			s.text(x, bottom+20, style{size: 12, fill: muted, anchor: middleOf}, t.Format(format))
		}
		if day := t.Format("2 Jan 2006"); day != date || format == "" {
			date = day
			s.text(x, bottom+map[bool]float64{true: 36, false: 20}[format != ""], style{size: 12, fill: muted, anchor: middleOf}, day)
		}
	}
	s.text(right, bottom+62, style{size: 12, fill: ink, weight: bold, anchor: end}, "time (UTC)")
	s.text(left, bottom+62, style{size: 12, fill: muted}, v.from.UTC().Format("2006-01-02 15:04:05")+" to "+v.to.UTC().Format("2006-01-02 15:04:05"))
}
