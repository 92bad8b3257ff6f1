// Package emf writes the functions' metrics in CloudWatch's embedded metric format: a log line that
// CloudWatch turns into metrics, so that a call pays for no request of its own.
//
// Vocabulary: a line is one JSON object of the log; a metric's dimensions name the series it belongs to.
//
// Invariants: dimensions are the deployment (by its table), the function and the route. A topic's name in
// a dimension would be a metric for each topic, and would tell it to whoever reads metrics. infra's alarms
// take the names from here, and its tests hold them against the lines.
//
// Non-goals: writing to CloudWatch directly, metrics of the local server (pkg/local).
package emf

import (
	"encoding/json"
	"time"
)

// Namespace is where CloudWatch keeps the metrics.
const Namespace = "Spillway"

// The dimensions.
const (
	Table    = "Table"
	Function = "Function"
	Route    = "Route"
)

// The metrics of scheduled runs, under Table and Function.
const (
	// Runs is 1 for each run, also for one that failed: when it is missing the schedule does not run.
	Runs = "Runs"
	// Faults is 1 for a run that failed, or a call that ended in 5xx.
	Faults = "Faults"
	// OldestMessageAge is for how many seconds the oldest message that may be claimed, and is not, has
	// been visible; 0 if there is none. The leader writes it.
	OldestMessageAge = "OldestMessageAge"
	// Promoted, Changed and Deleted are what runs did: messages that the leader promoted, segments that it
	// split or merged, objects that the compactor deleted.
	Promoted = "Promoted"
	Changed  = "Changed"
	Deleted  = "Deleted"
	// HotSegments is how many segments of watched topics have nearly all of their load from one slot, which no
	// split can part. The leader writes it.
	HotSegments = "HotSegments"
)

// The units.
const (
	count        = "Count"
	seconds      = "Seconds"
	milliseconds = "Milliseconds"
	bytes        = "Bytes"
)

// definition says of a metric what it is; its value is a field of the line.
type definition struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

type directive struct {
	Namespace  string       `json:"Namespace"`
	Dimensions [][]string   `json:"Dimensions"`
	Metrics    []definition `json:"Metrics"`
}

type header struct {
	Timestamp         int64       `json:"Timestamp"`
	CloudWatchMetrics []directive `json:"CloudWatchMetrics"`
}

func headerOf(at time.Time, dimensions [][]string, metrics []definition) header {
	return header{at.UnixMilli(), []directive{{Namespace: Namespace, Dimensions: dimensions, Metrics: metrics}}}
}

// Call is one answered call of the API.
type Call struct {
	At              time.Time
	Table, Function string
	// Route is method and pattern, Code the error code if any.
	Route, Code string
	Status      int
	// EntryFault says that an entry of an answer 200 failed by a fault of ours.
	EntryFault     bool
	Duration       time.Duration
	Received, Sent int64
}

type callLine struct {
	Meta     header  `json:"_aws"`
	Table    string  `json:"Table"`
	Function string  `json:"Function"`
	Route    string  `json:"Route"`
	Status   int     `json:"Status"`
	Code     string  `json:"Code,omitempty"`
	Calls    int     `json:"Calls"`
	Faults   int     `json:"Faults"`
	Refused  int     `json:"Refused"`
	Duration float64 `json:"Duration"`
	Received int64   `json:"Received"`
	Sent     int64   `json:"Sent"`
}

const (
	firstClientError = 400
	firstServerError = 500
)

// Line is the call's line, with its newline.
func (c Call) Line() []byte {
	line := callLine{
		Meta: headerOf(c.At, [][]string{{Table, Function}, {Table, Function, Route}}, []definition{
			{"Calls", count},
			{Faults, count},
			{"Refused", count},
			{"Duration", milliseconds},
			{"Received", bytes},
			{"Sent", bytes},
		}),
		Table: c.Table, Function: c.Function, Route: c.Route, Status: c.Status, Code: c.Code, Calls: 1,
		Duration: float64(c.Duration.Microseconds()) / float64(time.Millisecond/time.Microsecond),
		Received: c.Received, Sent: c.Sent,
	}
	switch {
	case c.Status >= firstServerError, c.EntryFault:
		line.Faults = 1
	case c.Status >= firstClientError:
		line.Refused = 1
	}
	return encode(line)
}

// Run is one scheduled run.
type Run struct {
	At              time.Time
	Table, Function string
	Failed          bool
	// Part says that it is a part of a run, or was woken by a producer: it does not count in Runs, whose
	// absence tells that a schedule is dead.
	Part bool
	// What the run did, and of what: Promoted, Changed or Deleted.
	What string
	Done int
	// Age is OldestMessageAge, if HasAge.
	Age    time.Duration
	HasAge bool
	// Hot is HotSegments, if HasHot.
	Hot    int
	HasHot bool
}

// Line is the run's line, with its newline.
func (r Run) Line() []byte {
	metrics := []definition{{Faults, count}, {r.What, count}}
	line := map[string]any{Table: r.Table, Function: r.Function, Faults: 0, r.What: r.Done}
	if !r.Part {
		metrics = append(metrics, definition{Runs, count})
		line[Runs] = 1
	}
	if r.Failed {
		line[Faults] = 1
	}
	if r.HasAge {
		metrics = append(metrics, definition{OldestMessageAge, seconds})
		line[OldestMessageAge] = r.Age.Seconds()
	}
	if r.HasHot {
		metrics = append(metrics, definition{HotSegments, count})
		line[HotSegments] = r.Hot
	}
	line["_aws"] = headerOf(r.At, [][]string{{Table, Function}}, metrics)
	return encode(line)
}

func encode(line any) []byte {
	data, err := json.Marshal(line)
	if err != nil {
		return nil // a line is made of numbers and words: it always encodes
	}
	return append(data, '\n')
}
