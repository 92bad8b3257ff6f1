//go:build localstack

package localstack

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	lambdatypes "github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	schedulertypes "github.com/aws/aws-sdk-go-v2/service/scheduler/types"
)

// surgery changes a deployment behind CloudFormation's back.
type surgery struct {
	*deployment
	dynamodb  *dynamodb.Client
	s3        *s3.Client
	scheduler *scheduler.Client
	lambda    *lambda.Client
	iam       *iam.Client
	alarms    *cloudwatch.Client
}

func operate(t *testing.T, d *deployment) *surgery {
	t.Helper()
	cfg, err := config.LoadDefaultConfig(t.Context(), config.WithRegion(region), config.WithBaseEndpoint(d.url))
	if err != nil {
		t.Fatal(err)
	}
	return &surgery{
		d, dynamodb.NewFromConfig(cfg), s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }), scheduler.NewFromConfig(cfg),
		lambda.NewFromConfig(cfg), iam.NewFromConfig(cfg), cloudwatch.NewFromConfig(cfg),
	}
}

// done takes what an SDK's call gives, of which only the error matters.
func done[T any](t *testing.T) func(T, error) {
	return func(_ T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (s *surgery) ttl(t *testing.T, on bool) {
	done[*dynamodb.UpdateTimeToLiveOutput](t)(s.dynamodb.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{
		TableName: &s.TableName, TimeToLiveSpecification: &dynamotypes.TimeToLiveSpecification{AttributeName: aws.String("ttl"), Enabled: &on},
	}))
}

func (s *surgery) recovery(t *testing.T, on bool) {
	done[*dynamodb.UpdateContinuousBackupsOutput](t)(s.dynamodb.UpdateContinuousBackups(t.Context(), &dynamodb.UpdateContinuousBackupsInput{
		TableName: &s.TableName, PointInTimeRecoverySpecification: &dynamotypes.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: &on},
	}))
}

func (s *surgery) protection(t *testing.T, on bool) {
	done[*dynamodb.UpdateTableOutput](t)(s.dynamodb.UpdateTable(t.Context(), &dynamodb.UpdateTableInput{TableName: &s.TableName, DeletionProtectionEnabled: &on}))
}

// lifecycle sets the rules of the stack, and one more that deletes if days is not 0.
func (s *surgery) lifecycle(t *testing.T, days int32) {
	rules := []s3types.LifecycleRule{{
		ID: aws.String("abort-incomplete-multipart-uploads"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
		AbortIncompleteMultipartUpload: &s3types.AbortIncompleteMultipartUpload{DaysAfterInitiation: aws.Int32(1)},
	}}
	if days > 0 {
		rules = append(rules, s3types.LifecycleRule{
			ID: aws.String("tidy"), Status: s3types.ExpirationStatusEnabled, Filter: &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
			Expiration: &s3types.LifecycleExpiration{Days: &days},
		})
	}
	done[*s3.PutBucketLifecycleConfigurationOutput](t)(s.s3.PutBucketLifecycleConfiguration(t.Context(), &s3.PutBucketLifecycleConfigurationInput{
		Bucket: &s.BucketName, LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{Rules: rules},
	}))
}

func (s *surgery) blocked(t *testing.T, on bool) {
	done[*s3.PutPublicAccessBlockOutput](t)(s.s3.PutPublicAccessBlock(t.Context(), &s3.PutPublicAccessBlockInput{
		Bucket: &s.BucketName, PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
			BlockPublicAcls: &on, BlockPublicPolicy: aws.Bool(true), IgnorePublicAcls: aws.Bool(true), RestrictPublicBuckets: aws.Bool(true),
		},
	}))
}

// schedule changes rate and state of a function's schedule.
func (s *surgery) schedule(t *testing.T, function, rate string, state schedulertypes.ScheduleState) {
	t.Helper()
	all, err := s.scheduler.ListSchedules(t.Context(), &scheduler.ListSchedulesInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all.Schedules {
		if !strings.HasPrefix(*entry.Name, s.stack+"-") || !strings.Contains(*entry.Name, function+"Schedule") {
			continue
		}
		now, err := s.scheduler.GetSchedule(t.Context(), &scheduler.GetScheduleInput{Name: entry.Name})
		if err != nil {
			t.Fatal(err)
		}
		done[*scheduler.UpdateScheduleOutput](t)(s.scheduler.UpdateSchedule(t.Context(), &scheduler.UpdateScheduleInput{
			Name: entry.Name, ScheduleExpression: &rate, State: state, Target: now.Target, FlexibleTimeWindow: now.FlexibleTimeWindow,
		}))
		return
	}
	t.Fatalf("no schedule of %s", function)
}

// function finds one of the deployment's functions.
func (s *surgery) function(t *testing.T, function string) *lambdatypes.FunctionConfiguration {
	t.Helper()
	all, err := s.lambda.ListFunctions(t.Context(), &lambda.ListFunctionsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Functions {
		if name := *all.Functions[i].FunctionName; strings.HasPrefix(name, s.stack+"-") && strings.Contains(name, "Spillway"+function) {
			return &all.Functions[i]
		}
	}
	t.Fatalf("no function %s", function)
	return nil
}

// environ sets one variable of a function, and gives what it was before.
func (s *surgery) environ(t *testing.T, function, name, value string) (before string) {
	t.Helper()
	f := s.function(t, function)
	before = f.Environment.Variables[name]
	f.Environment.Variables[name] = value
	done[*lambda.UpdateFunctionConfigurationOutput](t)(s.lambda.UpdateFunctionConfiguration(t.Context(), &lambda.UpdateFunctionConfigurationInput{
		FunctionName: f.FunctionName, Environment: &lambdatypes.Environment{Variables: f.Environment.Variables},
	}))
	eventually(t, 30*time.Second, function+" is updated", func() bool {
		f := s.function(t, function)
		return f.State != lambdatypes.StatePending && f.LastUpdateStatus != lambdatypes.LastUpdateStatusInProgress
	})
	return before
}

// policy replaces the policy of a function's role on its data, and gives the one before.
func (s *surgery) policy(t *testing.T, function, text string) (before string) {
	t.Helper()
	role := aws.ToString(s.function(t, function).Role)
	role = role[strings.LastIndex(role, "/")+1:]
	got, err := s.iam.GetRolePolicy(t.Context(), &iam.GetRolePolicyInput{RoleName: &role, PolicyName: aws.String("data")})
	if err != nil {
		t.Fatal(err)
	}
	done[*iam.PutRolePolicyOutput](t)(s.iam.PutRolePolicy(t.Context(), &iam.PutRolePolicyInput{
		RoleName: &role, PolicyName: aws.String("data"), PolicyDocument: &text,
	}))
	if before, err = url.PathUnescape(aws.ToString(got.PolicyDocument)); err != nil {
		t.Fatal(err)
	}
	return before
}

// diagnose runs `spillway doctor`, and gives what is not ok, besides the version, which is that of a checkout.
func (p *program) diagnose(t *testing.T, code int, args ...string) map[string]string {
	t.Helper()
	out, _ := p.run(t, code, "", append([]string{"doctor", "--output", "json"}, args...)...)
	var d struct {
		OK       int
		Findings []struct{ Check, Status, Message, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &d); err != nil || len(d.Findings) < 10 {
		t.Fatalf("%v: %s", err, out)
	}
	found := map[string]string{}
	for _, f := range d.Findings {
		if f.Status != "ok" && f.Fix == "" {
			t.Errorf("says nothing to do: %+v", f)
		}
		if f.Status != "ok" && f.Check != "version" {
			found[f.Check] = f.Status + ": " + f.Message
		}
	}
	return found
}

// doctor: a healthy deployment has no findings; each thing that is broken has its own.
func doctor(t *testing.T, p *program, d *deployment) {
	s := operate(t, d)
	// The other parts made the compactor run more often. The rest is what emulators leave undone of a template;
	// the doctor finds it, too.
	s.schedule(t, "Compactor", "rate(5 minutes)", schedulertypes.ScheduleStateEnabled)
	s.ttl(t, true)
	s.recovery(t, true)
	s.lifecycle(t, 0)
	if found := p.diagnose(t, 0, "--stack", d.stack); len(found) != 0 {
		t.Fatalf("healthy: %v", found)
	}
	const nothing = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:ListBucket","Resource":"*"}]}`
	var before string
	for _, c := range []struct {
		check, status string
		broken, mend  func()
	}{
		{"table.ttl", "fail", func() { s.ttl(t, false) }, func() { s.ttl(t, true) }},
		{"table.recovery", "warn", func() { s.recovery(t, false) }, func() { s.recovery(t, true) }},
		{"table.protection", "warn", func() { s.protection(t, false) }, func() { s.protection(t, true) }},
		{"bucket.public", "fail", func() { s.blocked(t, false) }, func() { s.blocked(t, true) }},
		{"bucket.lifecycle", "fail", func() { s.lifecycle(t, 7) }, func() { s.lifecycle(t, 0) }},
		{
			"schedule.leader", "fail",
			func() { s.schedule(t, "Leader", "rate(1 minute)", schedulertypes.ScheduleStateDisabled) },
			func() { s.schedule(t, "Leader", "rate(1 minute)", schedulertypes.ScheduleStateEnabled) },
		},
		{
			"schedule.compactor", "warn",
			func() { s.schedule(t, "Compactor", "rate(1 day)", schedulertypes.ScheduleStateEnabled) },
			func() { s.schedule(t, "Compactor", "rate(5 minutes)", schedulertypes.ScheduleStateEnabled) },
		},
		{
			"function.compactor", "fail",
			func() { before = s.environ(t, "Compactor", "SPILLWAY_TABLE", "another") },
			func() { s.environ(t, "Compactor", "SPILLWAY_TABLE", before) },
		},
		{
			"rights.compactor", "fail",
			func() { before = s.policy(t, "Compactor", nothing) },
			func() { s.policy(t, "Compactor", before) },
		},
	} {
		c.broken()
		code := 0
		if c.status == "fail" {
			code = 1
		}
		if found := p.diagnose(t, code, "--stack", d.stack); len(found) != 1 || !strings.HasPrefix(found[c.check], c.status+": ") {
			t.Errorf("%s broken: %v, want one finding, %s", c.check, found, c.status)
		}
		c.mend()
	}
	if found := p.diagnose(t, 0, "--stack", d.stack); len(found) != 0 {
		t.Errorf("mended: %v", found)
	}
	if found := p.diagnose(t, 1, "--stack", "NoSuchStack"); !strings.HasPrefix(found["stack"], "fail: ") {
		t.Errorf("a stack that is not there: %v", found)
	}
	found := p.diagnose(t, 1, "--table", "no-such-table", "--bucket", d.BucketName)
	if !strings.HasPrefix(found["table"], "fail: ") || found["bucket"] != "" || !strings.HasPrefix(found["function.leader"], "unknown: ") {
		t.Errorf("without a stack, and with a table that is not there: %v", found)
	}
}
