package host

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi"
)

// metrics writes CloudWatch's embedded metric format: a log line that CloudWatch turns into metrics, so
// that a call pays for no request of its own. Dimensions are the deployment (by its table), the function and
// the route; a topic's name in
// a dimension would be a metric for each, and would tell it to whoever reads metrics.
type metrics struct {
	function, table string
	clock           func() time.Time
	mu              sync.Mutex // guards out: lines must not mix
	out             io.Writer
}

// namespace is where CloudWatch keeps the metrics; the alarms of infra read it.
const namespace = "Spillway"

type emfMetric struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

type emfDirective struct {
	Namespace  string      `json:"Namespace"`
	Dimensions [][]string  `json:"Dimensions"`
	Metrics    []emfMetric `json:"Metrics"`
}

type emfMeta struct {
	Timestamp         int64          `json:"Timestamp"`
	CloudWatchMetrics []emfDirective `json:"CloudWatchMetrics"`
}

type emfCall struct {
	Meta     emfMeta `json:"_aws"`
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

func (m *metrics) observe(o httpapi.Observation) {
	line := emfCall{
		Meta: emfMeta{
			Timestamp: m.clock().UnixMilli(),
			CloudWatchMetrics: []emfDirective{{
				Namespace: namespace, Dimensions: [][]string{{"Table", "Function"}, {"Table", "Function", "Route"}},
				Metrics: []emfMetric{
					{"Calls", "Count"},
					{"Faults", "Count"},
					{"Refused", "Count"},
					{"Duration", "Milliseconds"},
					{"Received", "Bytes"},
					{"Sent", "Bytes"},
				},
			}},
		},
		Table: m.table, Function: m.function, Route: o.Method + " " + o.Route, Status: o.Status, Code: string(o.Code), Calls: 1,
		Duration: float64(o.Duration.Microseconds()) / float64(time.Millisecond/time.Microsecond),
		Received: o.Received, Sent: o.Sent,
	}
	switch {
	case o.Status >= firstServerError, o.EntryFault:
		line.Faults = 1
	case o.Status >= firstClientError:
		line.Refused = 1
	}
	m.write(line)
}

// run tells of one scheduled run, and how much it did of what.
func (m *metrics) run(what string, n int, err error) {
	faults := 0
	if err != nil {
		faults = 1
	}
	m.write(map[string]any{
		"_aws": emfMeta{
			Timestamp: m.clock().UnixMilli(),
			CloudWatchMetrics: []emfDirective{{
				Namespace: namespace, Dimensions: [][]string{{"Table", "Function"}},
				Metrics: []emfMetric{{"Runs", "Count"}, {"Faults", "Count"}, {what, "Count"}},
			}},
		},
		"Table": m.table, "Function": m.function, "Runs": 1, "Faults": faults, what: n,
	})
}

func (m *metrics) write(line any) {
	data, err := json.Marshal(line)
	if err != nil {
		return // the line is made of numbers and words: it always encodes
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.out.Write(append(data, '\n'))
}
