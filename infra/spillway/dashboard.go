package spillway

import (
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/interfaces/interfacesawscloudwatch"
	"github.com/aws/jsii-runtime-go"

	"github.com/spillway-mq/spillway/functions/emf"
)

// addDashboard shows, from top to bottom: is something wrong; what do callers see; who is behind it.
func (s *Spillway) addDashboard() {
	const minute, hour = time.Minute, time.Hour
	each := func(name, statistic string) []awscloudwatch.IMetric {
		var out []awscloudwatch.IMetric
		for _, f := range Functions() {
			out = append(out, label(s.functionMetric(f, name, statistic, minute), string(f)))
		}
		return out
	}
	var alarms []interfacesawscloudwatch.IAlarmRef
	for _, id := range slices.Sorted(maps.Keys(s.Alarms)) {
		alarms = append(alarms, s.Alarms[id])
	}
	size := map[string]*string{"BucketName": s.Bucket.BucketName(), "StorageType": jsii.String("StandardStorage")}
	s.Dashboard = awscloudwatch.NewDashboard(s.Construct, jsii.String("Dashboard"), &awscloudwatch.DashboardProps{
		Widgets: &[]*[]awscloudwatch.IWidget{
			{awscloudwatch.NewAlarmStatusWidget(&awscloudwatch.AlarmStatusWidgetProps{
				Title: jsii.String("Alarms"), Alarms: &alarms, Width: jsii.Number(24), Height: jsii.Number(3),
			})},
			{
				graph("Oldest message not consumed (s)", s.own(emf.OldestMessageAge, "Maximum")),
				graph("API calls", s.apiMetric("Count", "Sum", minute), s.apiMetric("4xx", "Sum", minute), s.apiMetric("5xx", "Sum", minute)),
				graph("API latency (ms)", label(s.apiMetric("Latency", "p50", minute), "p50"), label(s.apiMetric("Latency", "p99", minute), "p99")),
			},
			{
				graph("Function calls", each("Invocations", "Sum")...),
				graph("Function errors", each("Errors", "Sum")...),
				graph("Function throttles", each("Throttles", "Sum")...),
			},
			{
				graph("Function time, p99 (ms)", each("Duration", "p99")...),
				graph("Functions at once", each("ConcurrentExecutions", "Maximum")...),
				graph("Leader runs", s.own(emf.Runs, "Sum")),
			},
			{
				graph("Table units", s.tableMetric("ConsumedWriteCapacityUnits"), s.tableMetric("ConsumedReadCapacityUnits")),
				graph("Table throttles", s.tableMetric("WriteThrottleEvents"), s.tableMetric("ReadThrottleEvents")),
				graph("Bytes stored, daily", metric("AWS/S3", "BucketSizeBytes", "Average", 24*hour, size)),
			},
		},
	})
}

func label(m awscloudwatch.Metric, text string) awscloudwatch.IMetric {
	return m.With(&awscloudwatch.MetricOptions{Label: jsii.String(text)})
}

func graph(title string, left ...awscloudwatch.IMetric) awscloudwatch.IWidget {
	return awscloudwatch.NewGraphWidget(&awscloudwatch.GraphWidgetProps{
		Title: jsii.String(title), Left: &left, Width: jsii.Number(8), Height: jsii.Number(6),
	})
}
