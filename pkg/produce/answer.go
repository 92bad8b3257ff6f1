package produce

import (
	"slices"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// answer joins the results of neighbours that share place and times into runs.
func (c *call) answer() Answer {
	var a Answer
	for pos := range c.results {
		r := &c.results[pos]
		if n := len(a.Runs); n > 0 && follows(&a.Runs[n-1], r) {
			a.Runs[n-1].Count++
			continue
		}
		run := Run{First: pos, Count: 1, Err: r.err}
		if r.err == nil {
			run.Created, run.Visible, run.Expires, run.Warnings = r.created, r.visible, r.expires, r.warnings
			if run.ID = r.id; r.delayed != nil {
				id := *r.delayed
				run.Delayed, run.ID = &id, queue.MessageID{}
			}
		}
		a.Runs = append(a.Runs, run)
	}
	return a
}

// follows reports whether r is the next message of run.
func follows(run *Run, r *result) bool {
	if run.Err != nil || r.err != nil {
		return false
	}
	if run.Created != r.created || run.Visible != r.visible || run.Expires != r.expires || !slices.Equal(run.Warnings, r.warnings) {
		return false
	}
	if run.Delayed != nil {
		return r.delayed != nil && r.delayed.Entry == run.Delayed.Entry && r.delayed.Visible == run.Delayed.Visible &&
			int(r.delayed.Index) == int(run.Delayed.Index)+run.Count
	}
	return r.delayed == nil && r.id.Segment == run.ID.Segment && r.id.Offset == run.ID.Offset+queue.Offset(run.Count)
}
