package survey

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
)

// id is a function's construct id in the stack.
func id(fn doctor.Function) string { return strings.ToUpper(string(fn[:1])) + string(fn[1:]) }

func (s *surveyor) functions(ctx context.Context) {
	f := s.facts
	f.Functions = map[doctor.Function]doctor.Fact[doctor.Lambda]{}
	for _, fn := range doctor.All() {
		name, t := s.resource("AWS::Lambda::Function", id(fn))
		if t != nil {
			f.Functions[fn] = doctor.Fact[doctor.Lambda]{Trouble: t}
			continue
		}
		out, err := s.lambda.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &name})
		fact := ask(out, err, lambdaOf)
		fact.Value.Name = name
		f.Functions[fn] = fact
	}
	s.leaderRan(ctx)
	s.rights(ctx)
}

func lambdaOf(out *lambda.GetFunctionConfigurationOutput) doctor.Lambda {
	l := doctor.Lambda{
		ARN: aws.ToString(out.FunctionArn), Role: aws.ToString(out.Role), State: string(out.State), StateReason: aws.ToString(out.StateReason),
		LastUpdate: string(out.LastUpdateStatus), Runtime: string(out.Runtime), Timeout: time.Duration(aws.ToInt32(out.Timeout)) * time.Second,
		LogGroup: "/aws/lambda/" + aws.ToString(out.FunctionName),
	}
	for _, a := range out.Architectures {
		l.Arch = string(a)
	}
	if c := out.LoggingConfig; c != nil && c.LogGroup != nil {
		l.LogGroup = *c.LogGroup
	}
	if e := out.Environment; e != nil {
		l.Table, l.Bucket = e.Variables["SPILLWAY_TABLE"], e.Variables["SPILLWAY_BUCKET"]
	}
	return l
}

// maxLogPages bounds what is read of a log.
const maxLogPages = 20

// leaderRan looks for the metrics that a scheduled run leaves in the log.
func (s *surveyor) leaderRan(ctx context.Context) {
	fact := &s.facts.LeaderRan
	leader := s.facts.Functions[doctor.Leader]
	if t := leader.Trouble; t != nil {
		fact.Trouble = unasked("see function.leader")
		return
	}
	pages := cloudwatchlogs.NewFilterLogEventsPaginator(s.logs, &cloudwatchlogs.FilterLogEventsInput{
		LogGroupName: &leader.Value.LogGroup, FilterPattern: aws.String(`{ $.Runs = 1 }`),
		StartTime: aws.Int64(s.facts.Now.Add(-doctor.LogWindow).UnixMilli()),
	})
	for n := 0; pages.HasMorePages(); n++ {
		if n == maxLogPages {
			if fact.Value.IsZero() {
				fact.Trouble = &doctor.Trouble{Text: "the leader's log is too long to look through"}
			}
			return
		}
		page, err := pages.NextPage(ctx)
		if err != nil {
			fact.Trouble = troubleOf(err)
			return
		}
		for _, e := range page.Events {
			var run struct{ Runs int }
			if at := time.UnixMilli(aws.ToInt64(e.Timestamp)); json.Unmarshal([]byte(aws.ToString(e.Message)), &run) == nil && run.Runs > 0 && at.After(fact.Value) {
				fact.Value = at
			}
		}
	}
}

func (s *surveyor) schedules(ctx context.Context) {
	f := s.facts
	f.Schedules = map[doctor.Function]doctor.Fact[doctor.Schedule]{}
	for _, fn := range doctor.Scheduled() {
		name, t := s.resource("AWS::Scheduler::Schedule", id(fn)+"Schedule")
		if t != nil {
			f.Schedules[fn] = doctor.Fact[doctor.Schedule]{Trouble: t}
			continue
		}
		// CloudFormation's id may have the group in front.
		name = name[strings.LastIndexAny(name, "|/")+1:]
		out, err := s.scheduler.GetSchedule(ctx, &scheduler.GetScheduleInput{Name: &name})
		fact := ask(out, err, func(out *scheduler.GetScheduleOutput) doctor.Schedule {
			sc := doctor.Schedule{State: string(out.State), Rate: aws.ToString(out.ScheduleExpression)}
			if out.Target != nil {
				sc.Target, sc.Input = aws.ToString(out.Target.Arn), aws.ToString(out.Target.Input)
			}
			return sc
		})
		fact.Value.Name = name
		f.Schedules[fn] = fact
	}
}

func (s *surveyor) alarms(ctx context.Context) {
	fact := &s.facts.Alarms
	ids := map[string]string{} // by name
	var names []string
	for _, want := range doctor.Alarms() {
		name, t := s.resource("AWS::CloudWatch::Alarm", want)
		switch {
		case t == nil:
			ids[name] = want
			names = append(names, name)
		case t.Kind != doctor.Absent:
			fact.Trouble = t
			return
		}
	}
	fact.Value = map[string]doctor.Alarm{}
	if len(names) == 0 {
		return
	}
	pages := cloudwatch.NewDescribeAlarmsPaginator(s.cloudwatch, &cloudwatch.DescribeAlarmsInput{AlarmNames: names})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			fact.Trouble = troubleOf(err)
			return
		}
		for i := range page.MetricAlarms {
			a := &page.MetricAlarms[i]
			fact.Value[ids[aws.ToString(a.AlarmName)]] = doctor.Alarm{
				Name: aws.ToString(a.AlarmName), State: string(a.StateValue), ActionsOn: aws.ToBool(a.ActionsEnabled),
			}
		}
	}
}
