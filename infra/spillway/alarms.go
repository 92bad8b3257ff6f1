package spillway

import (
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatchactions"
	"github.com/aws/jsii-runtime-go"

	"github.com/spillway-mq/spillway/functions/emf"
)

// alarm is what the alarms differ in: `metric over period` compared with a threshold, in the last
// `periods` periods.
type alarm struct {
	id, what  string
	metric    awscloudwatch.IMetric
	below     bool
	threshold float64
	periods   int
	// silent says that no data is as bad as a breach.
	silent bool
}

func (s *Spillway) addAlarms() {
	alarms := []alarm{
		{
			id: "OldestMessageTooOld", metric: s.own(emf.OldestMessageAge, "Maximum"),
			threshold: s.props.OldestMessageAge.Seconds(), periods: 5,
			what: "A message waits to be consumed for too long: consumers are missing, too slow, or failing.",
		},
		{
			id: "LeaderNotRun", metric: s.own(emf.Runs, "Sum"), below: true, threshold: 1, periods: 5, silent: true,
			what: "The leader has not run for 5 minutes: topics do not scale, and delayed messages of idle topics are late. See its log and its schedule.",
		},
		// Two, not their sum: emulators know no metric math in alarms.
		{
			id: "TableReadsThrottled", metric: s.tableMetric("ReadThrottleEvents"), threshold: 0, periods: 3,
			what: "DynamoDB refuses reads. If it goes on, look for a topic that is polled too often, and at the table's limits.",
		},
		{
			id: "TableWritesThrottled", metric: s.tableMetric("WriteThrottleEvents"), threshold: 0, periods: 3,
			what: "DynamoDB refuses writes. A hot segment splits by itself; if it goes on, look at the table's limits.",
		},
		{
			id: "ApiErrors", metric: s.apiMetric("5xx", "Sum", 5*time.Minute), threshold: 4, periods: 2,
			what: "Calls end in 5xx. See the access log, then the function's.",
		},
	}
	for _, f := range Functions() {
		period := 5 * time.Minute
		if f == Compactor {
			// Of three runs.
			period = 15 * time.Minute
		}
		alarms = append(alarms,
			alarm{
				id: f.id() + "Errors", metric: s.functionMetric(f, "Errors", "Sum", period), threshold: 1, periods: 1,
				what: fmt.Sprintf("The function %s crashed, ran out of time, or gave up more than once. See its log.", f),
			},
			alarm{
				id: f.id() + "Throttled", metric: s.functionMetric(f, "Throttles", "Sum", period), threshold: 0, periods: 2,
				what: fmt.Sprintf("Lambda refuses calls of %s: it is out of concurrency, its own or the account's.", f),
			},
		)
	}
	for i := range alarms {
		s.addAlarm(&alarms[i])
	}
}

func (s *Spillway) addAlarm(a *alarm) {
	props := &awscloudwatch.AlarmProps{
		AlarmDescription:   jsii.String("Spillway: " + a.what),
		Metric:             a.metric,
		ComparisonOperator: awscloudwatch.ComparisonOperator_GREATER_THAN_THRESHOLD,
		Threshold:          jsii.Number(a.threshold),
		EvaluationPeriods:  jsii.Number(a.periods),
		TreatMissingData:   awscloudwatch.TreatMissingData_NOT_BREACHING,
	}
	if a.below {
		props.ComparisonOperator = awscloudwatch.ComparisonOperator_LESS_THAN_THRESHOLD
	}
	if a.silent {
		props.TreatMissingData = awscloudwatch.TreatMissingData_BREACHING
	}
	made := awscloudwatch.NewAlarm(s.Construct, jsii.String(a.id), props)
	if topic := s.props.AlarmTopic; topic != nil {
		action := awscloudwatchactions.NewSnsAction(topic)
		made.AddAlarmAction(action)
		made.AddOkAction(action)
	}
	s.Alarms[a.id] = made
}

// own is one of the leader's metrics, over a minute.
func (s *Spillway) own(name, statistic string) awscloudwatch.Metric {
	return metric(emf.Namespace, name, statistic, time.Minute, map[string]*string{
		emf.Table: s.Table.TableName(), emf.Function: jsii.String(string(Leader)),
	})
}

func (s *Spillway) functionMetric(f Function, name, statistic string, period time.Duration) awscloudwatch.Metric {
	return metric("AWS/Lambda", name, statistic, period, map[string]*string{"FunctionName": s.Functions[f].FunctionName()})
}

func (s *Spillway) apiMetric(name, statistic string, period time.Duration) awscloudwatch.Metric {
	return metric("AWS/ApiGateway", name, statistic, period, map[string]*string{"ApiId": s.API.ApiId()})
}

func (s *Spillway) tableMetric(name string) awscloudwatch.Metric {
	return metric("AWS/DynamoDB", name, "Sum", time.Minute, map[string]*string{"TableName": s.Table.TableName()})
}

func metric(namespace, name, statistic string, period time.Duration, dimensions map[string]*string) awscloudwatch.Metric {
	return awscloudwatch.NewMetric(&awscloudwatch.MetricProps{
		Namespace: jsii.String(namespace), MetricName: jsii.String(name), Statistic: jsii.String(statistic),
		Period: awscdk.Duration_Seconds(jsii.Number(period.Seconds())), DimensionsMap: &dimensions,
	})
}
