package local

import (
	"github.com/prometheus/client_golang/prometheus"
)

// figures are what the embedded stores count themselves.
type figures struct{ s *stores }

type figure struct {
	name, help string
	kind       prometheus.ValueType
	value      float64
}

// Describe implements prometheus.Collector, as an unchecked one.
func (f figures) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f figures) Collect(out chan<- prometheus.Metric) {
	for _, one := range f.read() {
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(one.name, one.help, nil, nil), one.kind, one.value)
	}
}

func (f figures) read() []figure {
	m, o := f.s.meta.Stats(), f.s.files.Stats()
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	return []figure{
		{"spillway_meta_commits_total", "Commits of the metadata store; operations per commit is the depth of group commit.", counter, float64(m.Commits)},
		{"spillway_meta_operations_committed_total", "Operations that those commits carried.", counter, float64(m.Ops)},
		{"spillway_meta_commit_failures_total", "Commits of the metadata store that failed.", counter, float64(m.FailedCommits)},
		{"spillway_meta_fsyncs_total", "Syncs of the metadata file.", counter, float64(m.Fsyncs)},
		{"spillway_meta_queued", "Requests that wait for a commit now.", gauge, float64(m.Queued)},
		{"spillway_meta_file_bytes", "Size of the metadata file.", gauge, float64(m.FileBytes)},
		{"spillway_objects_written_bytes_total", "Bytes written to object files.", counter, float64(o.BytesWritten)},
		{"spillway_objects_fsyncs_total", "Syncs of object files and folders.", counter, float64(o.Fsyncs)},
		{"spillway_objects_packs", "Pack files in the data folder.", gauge, float64(o.Packs)},
	}
}
