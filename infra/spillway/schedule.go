package spillway

import (
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsscheduler"
	"github.com/aws/jsii-runtime-go"
)

// ScheduleInput is the event of a scheduled call. It tells the leader a schedule from an API call.
const ScheduleInput = `{"source":"aws.scheduler","detail-type":"Scheduled Event","time":"<aws.scheduler.scheduled-time>"}`

func (s *Spillway) addSchedules() {
	role := awsiam.NewRole(s.Construct, jsii.String("ScheduleRole"), &awsiam.RoleProps{
		Description: jsii.String("Lets the scheduler call the leader and the compactor of Spillway"),
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("scheduler.amazonaws.com"), &awsiam.ServicePrincipalOpts{
			// Only schedules of this account.
			Conditions: &map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": s.stack.Account()}},
		}),
		// Not by Grant…: that adds every version and alias of the functions.
		InlinePolicies: &map[string]awsiam.PolicyDocument{
			"call": policy(
				allow([]string{"lambda:InvokeFunction"}, s.Functions[Leader].FunctionArn()),
				allow([]string{"lambda:InvokeFunction"}, s.Functions[Compactor].FunctionArn()),
			),
		},
	})
	s.addSchedule(Leader, "rate(1 minute)", role)
	s.addSchedule(Compactor, "rate(5 minutes)", role)
}

func (s *Spillway) addSchedule(f Function, rate string, role awsiam.Role) {
	awsscheduler.NewCfnSchedule(s.Construct, jsii.String(f.id()+"Schedule"), &awsscheduler.CfnScheduleProps{
		Description:        jsii.String("Spillway: " + string(f)),
		ScheduleExpression: jsii.String(rate),
		FlexibleTimeWindow: &awsscheduler.CfnSchedule_FlexibleTimeWindowProperty{Mode: jsii.String("OFF")},
		Target: &awsscheduler.CfnSchedule_TargetProperty{
			Arn: s.Functions[f].FunctionArn(), RoleArn: role.RoleArn(), Input: jsii.String(ScheduleInput),
			// The next run does what this one did not.
			RetryPolicy: &awsscheduler.CfnSchedule_RetryPolicyProperty{
				MaximumRetryAttempts: jsii.Number(0), MaximumEventAgeInSeconds: jsii.Number(60),
			},
		},
	})
}
