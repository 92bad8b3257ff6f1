package local

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/lag"
)

// metrics are the server's figures for Prometheus. Their labels are routes and operations, never
// names of topics: a label per topic would grow without bound.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
}

func newMetrics(s *Server, waiting *lag.Service, version string) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_http_requests_total", Help: "API calls answered, by route, method, status and error code.",
		}, []string{"route", "method", "status", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "spillway_http_request_duration_seconds", Help: "Time from a call's arrival to the end of its answer; long polls wait in it.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}, []string{"route", "method"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_http_body_bytes_total", Help: "Bytes of request and answer bodies.",
		}, []string{"direction"}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "1, with the version as label.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.registry.MustRegister(
		m.calls, m.seconds, m.bytes, info, &storeCollector{s}, &lagCollector{s, waiting},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return m
}

func (m *metrics) observe(o httpapi.Observation) {
	m.calls.WithLabelValues(o.Route, o.Method, strconv.Itoa(o.Status), string(o.Code)).Inc()
	m.seconds.WithLabelValues(o.Route, o.Method).Observe(o.Duration.Seconds())
	m.bytes.WithLabelValues("received").Add(float64(o.Received))
	m.bytes.WithLabelValues("sent").Add(float64(o.Sent))
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// storeCollector reads the figures that the stores keep themselves.
type storeCollector struct{ s *Server }

type storeFigure struct {
	name, help string
	kind       prometheus.ValueType
	value      float64
}

// Describe implements prometheus.Collector; describing nothing makes the collector an unchecked one,
// since the operations that occur are not known beforehand.
func (c *storeCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *storeCollector) Collect(out chan<- prometheus.Metric) {
	byOp := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, []string{"operation"}, nil)
	}
	ops := byOp("spillway_store_operations_total", "Operations on the stores.")
	failures := byOp("spillway_store_errors_total", "Operations on the stores that failed.")
	refusals := byOp("spillway_store_refusals_total", "Conditional operations whose condition did not hold.")
	for _, row := range c.s.meter.Snapshot().Rows {
		out <- prometheus.MustNewConstMetric(ops, prometheus.CounterValue, float64(row.Ops), row.Op)
		out <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, float64(row.Errors), row.Op)
		out <- prometheus.MustNewConstMetric(refusals, prometheus.CounterValue, float64(row.Refusals), row.Op)
	}
	for _, f := range c.figures() {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(f.name, f.help, nil, nil), f.kind, f.value)
	}
}

func (c *storeCollector) figures() []storeFigure {
	m, f := c.s.meta.Stats(), c.s.files.Stats()
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	return []storeFigure{
		{"spillway_meta_commits_total", "Commits of the metadata store; operations per commit is the depth of group commit.", counter, float64(m.Commits)},
		{"spillway_meta_operations_committed_total", "Operations that those commits carried.", counter, float64(m.Ops)},
		{"spillway_meta_commit_failures_total", "Commits of the metadata store that failed.", counter, float64(m.FailedCommits)},
		{"spillway_meta_fsyncs_total", "Syncs of the metadata file.", counter, float64(m.Fsyncs)},
		{"spillway_meta_queued", "Requests that wait for a commit now.", gauge, float64(m.Queued)},
		{"spillway_meta_file_bytes", "Size of the metadata file.", gauge, float64(m.FileBytes)},
		{"spillway_objects_written_bytes_total", "Bytes written to object files.", counter, float64(f.BytesWritten)},
		{"spillway_objects_fsyncs_total", "Syncs of object files and folders.", counter, float64(f.Fsyncs)},
		{"spillway_objects_packs", "Pack files in the data folder.", gauge, float64(f.Packs)},
	}
}

// lagCollector looks, when it is asked, for how long messages have been waiting. A look is bounded
// (package lag), and here its reads are of the embedded store.
type lagCollector struct {
	s       *Server
	waiting *lag.Service
}

// lookTimeout bounds what a scrape waits for a look.
const lookTimeout = 2 * time.Second

func (c *lagCollector) desc() *prometheus.Desc {
	return prometheus.NewDesc("spillway_oldest_message_age_seconds",
		"For how long the oldest message that may be claimed, and is not, has been visible, over all subscriptions; 0 if there is none.", nil, nil)
}

// Describe implements prometheus.Collector.
func (c *lagCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc() }

// Collect implements prometheus.Collector.
func (c *lagCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	report, err := c.waiting.Look(ctx)
	if err != nil {
		c.s.logger.Warn("look for the oldest message", "error", err)
	}
	out <- prometheus.MustNewConstMetric(c.desc(), prometheus.GaugeValue, report.Oldest.Seconds())
}
