package server

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/lag"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/scale"
)

// metrics are the server's figures for Prometheus. Their labels are routes and operations, never
// names of topics: a label per topic would grow without bound.
type metrics struct {
	registry *prometheus.Registry
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
	changes  *prometheus.CounterVec
	hot      prometheus.Gauge
}

// newMetrics makes them; figures are the stores' own, and may be nil.
func newMetrics(counts *meter.Meter, figures prometheus.Collector, waiting *lagCollector, version string) *metrics {
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
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_segment_changes_total", Help: "Changes of segments that this process made as the leader, by action.",
		}, []string{"action"}),
		hot: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_hot_segments",
			Help: "Segments of topics under load, nearly all of whose load is of one slot, when this process last looked as the leader.",
		}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "1, with the version as label.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.registry.MustRegister(
		m.calls, m.seconds, m.bytes, m.changes, m.hot, info, &storeCollector{counts}, waiting,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	if figures != nil {
		m.registry.MustRegister(figures)
	}
	return m
}

func (m *metrics) observe(o httpapi.Observation) {
	m.calls.WithLabelValues(o.Route, o.Method, strconv.Itoa(o.Status), string(o.Code)).Inc()
	m.seconds.WithLabelValues(o.Route, o.Method).Observe(o.Duration.Seconds())
	m.bytes.WithLabelValues("received").Add(float64(o.Received))
	m.bytes.WithLabelValues("sent").Add(float64(o.Sent))
}

// led takes a look at the topics' load down.
func (m *metrics) led(r scale.Report) {
	m.changes.WithLabelValues(string(meta.ActionSplit)).Add(float64(r.Splits))
	m.changes.WithLabelValues(string(meta.ActionMerge)).Add(float64(r.Merges))
	if r.Led {
		m.hot.Set(float64(r.HotSegments))
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// storeCollector tells what has been asked of the stores.
type storeCollector struct{ counts *meter.Meter }

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
	for _, row := range c.counts.Snapshot().Rows {
		out <- prometheus.MustNewConstMetric(ops, prometheus.CounterValue, float64(row.Ops), row.Op)
		out <- prometheus.MustNewConstMetric(failures, prometheus.CounterValue, float64(row.Errors), row.Op)
		out <- prometheus.MustNewConstMetric(refusals, prometheus.CounterValue, float64(row.Refusals), row.Op)
	}
}

// lagCollector looks, when it is asked, for how long messages have been waiting. A look is bounded
// (package lag), and here its reads are of the embedded store.
type lagCollector struct {
	waiting *lag.Service
	logger  *slog.Logger
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
		c.logger.Warn("look for the oldest message", "error", err)
	}
	out <- prometheus.MustNewConstMetric(c.desc(), prometheus.GaugeValue, report.Oldest.Seconds())
}
