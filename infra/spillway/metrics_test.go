package spillway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/functions/emf"
)

// series names a metric with the names of its dimensions, and the function if that is one of them.
type series struct{ namespace, name, dimensions, function string }

// written are the series that the functions' own lines make: of the scheduled runs of leader and
// compactor, as package emf writes them, and of calls.
func written(t *testing.T) []series {
	t.Helper()
	var out []series
	add := func(line []byte, function string) {
		var v struct {
			Meta struct {
				CloudWatchMetrics []struct {
					Namespace  string
					Dimensions [][]string
					Metrics    []struct{ Name string }
				}
			} `json:"_aws"`
		}
		var fields map[string]any
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatal(err)
		}
		for _, d := range v.Meta.CloudWatchMetrics {
			for _, m := range d.Metrics {
				if _, ok := fields[m.Name].(float64); !ok {
					t.Errorf("the line says that it has the metric %s, and does not: %s", m.Name, line)
				}
				for _, names := range d.Dimensions {
					slices.Sort(names)
					out = append(out, series{d.Namespace, m.Name, strings.Join(names, ","), function})
				}
			}
		}
	}
	add(emf.Run{Function: "leader", What: emf.Promoted, HasAge: true}.Line(), "leader")
	add(emf.Run{Function: "leader", What: emf.Changed}.Line(), "leader")
	add(emf.Run{Function: "compactor", What: emf.Deleted}.Line(), "compactor")
	return out
}

// fromAWS are the series of services that the alarms and the dashboard may use, as the services'
// documentation lists them: Lambda "Types of metrics for Lambda functions", API Gateway "Monitor metrics
// for HTTP APIs", DynamoDB "Metrics and dimensions", S3 "Storage metrics".
func fromAWS() []series {
	var out []series
	for _, s := range []struct{ namespace, dimensions, names string }{
		{"AWS/Lambda", "FunctionName", "Invocations Errors Throttles Duration ConcurrentExecutions"},
		{"AWS/ApiGateway", "ApiId", "4xx 5xx Count Latency IntegrationLatency DataProcessed"},
		{"AWS/DynamoDB", "TableName", "ReadThrottleEvents WriteThrottleEvents ConsumedReadCapacityUnits ConsumedWriteCapacityUnits"},
		{"AWS/S3", "BucketName,StorageType", "BucketSizeBytes NumberOfObjects"},
	} {
		for name := range strings.FieldsSeq(s.names) {
			out = append(out, series{s.namespace, name, s.dimensions, ""})
		}
	}
	return out
}

// testMetrics: every metric that an alarm watches, or the dashboard shows, is one that somebody writes,
// under exactly these dimensions: an alarm on any other never goes on.
func testMetrics(t *testing.T, tpl *template) {
	known := append(written(t), fromAWS()...)
	check := func(what string, s series) {
		if !slices.Contains(known, s) {
			t.Errorf("%s: nobody writes %+v", what, s)
		}
	}
	for _, alarm := range tpl.all("AWS::CloudWatch::Alarm") {
		s := series{namespace: fmt.Sprint(alarm.at("Namespace")), name: fmt.Sprint(alarm.at("MetricName"))}
		dimensions, _ := alarm.at("Dimensions").([]any)
		var names []string
		for _, d := range dimensions {
			name := fmt.Sprint(at(d, "Name"))
			names = append(names, name)
			if name == emf.Function {
				s.function = fmt.Sprint(at(d, "Value"))
			}
		}
		slices.Sort(names)
		s.dimensions = strings.Join(names, ",")
		check(alarm.ID, s)
	}
	shown := 0
	for _, m := range dashboardMetrics(t, tpl) {
		shown++
		s := series{namespace: m[0], name: m[1]}
		var names []string
		for i := 2; i+1 < len(m); i += 2 {
			names = append(names, m[i])
			if m[i] == emf.Function {
				s.function = m[i+1]
			}
		}
		slices.Sort(names)
		s.dimensions = strings.Join(names, ",")
		check("dashboard", s)
	}
	if shown < 10 {
		t.Errorf("the dashboard shows %d metrics", shown)
	}
}

// dashboardMetrics are the metrics of the dashboard's widgets: namespace, name, then dimensions.
func dashboardMetrics(t *testing.T, tpl *template) [][]string {
	t.Helper()
	var text strings.Builder
	switch body := tpl.one(t, "AWS::CloudWatch::Dashboard", "").at("DashboardBody").(type) {
	case string:
		text.WriteString(body)
	case map[string]any: // Fn::Join, of text and references
		parts, _ := at(body, "Fn::Join.1").([]any)
		for _, p := range parts {
			if s, ok := p.(string); ok {
				text.WriteString(s)
			} else {
				text.WriteString("REF")
			}
		}
	}
	var v struct {
		Widgets []struct {
			Properties struct{ Metrics [][]any }
		}
	}
	if err := json.Unmarshal([]byte(text.String()), &v); err != nil {
		t.Fatalf("the dashboard: %v", err)
	}
	var out [][]string
	for _, w := range v.Widgets {
		for _, m := range w.Properties.Metrics {
			var words []string
			for _, word := range m {
				if s, ok := word.(string); ok {
					words = append(words, s)
				}
			}
			out = append(out, words)
		}
	}
	return out
}
