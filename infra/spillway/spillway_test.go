package spillway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/jsii-runtime-go"

	"github.com/spillway-mq/spillway/functions/emf"
	"github.com/spillway-mq/spillway/infra/spillway"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
)

func function(t *testing.T, tpl *template, f spillway.Function) *resource {
	t.Helper()
	name := string(f)
	return tpl.one(t, "AWS::Lambda::Function", strings.ToUpper(name[:1])+name[1:])
}

// TestTemplate looks at the template that the defaults give.
func TestTemplate(t *testing.T) {
	tpl := synth(t, spillway.Props{})[0]
	for name, test := range map[string]func(*testing.T, *template){
		"rights":    testRights,
		"wildcards": testWildcards,
		"bucket":    testBucket,
		"table":     testTable,
		"functions": testFunctions,
		"routes":    testRoutes,
		"stage":     testStage,
		"schedules": testSchedules,
		"alarms":    testAlarms,
		"metrics":   testMetrics,
	} {
		t.Run(name, func(t *testing.T) { test(t, tpl) })
	}
}

func testBucket(t *testing.T, tpl *template) {
	b := tpl.one(t, "AWS::S3::Bucket", "")
	if b.DeletionPolicy != "Retain" {
		t.Errorf("the bucket's deletion policy is %q: it must outlive the stack", b.DeletionPolicy)
	}
	want(t, b, map[string]any{
		"PublicAccessBlockConfiguration.BlockPublicAcls":                                                  true,
		"PublicAccessBlockConfiguration.BlockPublicPolicy":                                                true,
		"PublicAccessBlockConfiguration.IgnorePublicAcls":                                                 true,
		"PublicAccessBlockConfiguration.RestrictPublicBuckets":                                            true,
		"OwnershipControls.Rules.0.ObjectOwnership":                                                       "BucketOwnerEnforced",
		"BucketEncryption.ServerSideEncryptionConfiguration.0.ServerSideEncryptionByDefault.SSEAlgorithm": "AES256",
		"LifecycleConfiguration.Rules.0.AbortIncompleteMultipartUpload.DaysAfterInitiation":               1,
		// No rule deletes by age: a message may be older than any number of days.
		"LifecycleConfiguration.Rules.1":                  nil,
		"LifecycleConfiguration.Rules.0.ExpirationInDays": nil,
		"CorsConfiguration":                               nil,
	})
	deny := tpl.one(t, "AWS::S3::BucketPolicy", "")
	for i, condition := range []string{"Condition.Bool.aws:SecureTransport", "Condition.NumericLessThan.s3:TlsVersion"} {
		st := at(deny.Properties, fmt.Sprintf("PolicyDocument.Statement.%d", i))
		if at(st, "Effect") != "Deny" || at(st, "Action") != "s3:*" || at(st, condition) == nil {
			t.Errorf("statement %d of the bucket's policy is %v, want it to refuse %s", i, st, condition)
		}
	}
}

func testTable(t *testing.T, tpl *template) {
	table := tpl.one(t, "AWS::DynamoDB::Table", "")
	if table.DeletionPolicy != "Retain" {
		t.Errorf("the table's deletion policy is %q: it must outlive the stack", table.DeletionPolicy)
	}
	want(t, table, map[string]any{
		"DeletionProtectionEnabled":                                   true,
		"TimeToLiveSpecification.AttributeName":                       dynamometa.TTLAttribute,
		"TimeToLiveSpecification.Enabled":                             true,
		"PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled": true,
	})
	// As the driver wants it.
	in := dynamometa.TableInput("any")
	want(t, table, map[string]any{"BillingMode": string(in.BillingMode), "KeySchema.2": nil, "AttributeDefinitions.2": nil})
	for i, key := range in.KeySchema {
		want(t, table, map[string]any{
			fmt.Sprintf("KeySchema.%d.AttributeName", i): *key.AttributeName, fmt.Sprintf("KeySchema.%d.KeyType", i): string(key.KeyType),
		})
	}
	for i, attr := range in.AttributeDefinitions {
		want(t, table, map[string]any{
			fmt.Sprintf("AttributeDefinitions.%d.AttributeName", i): *attr.AttributeName, fmt.Sprintf("AttributeDefinitions.%d.AttributeType", i): string(attr.AttributeType),
		})
	}
}

func testFunctions(t *testing.T, tpl *template) {
	timeouts := map[spillway.Function]int{spillway.Produce: 29, spillway.Consume: 29, spillway.Leader: 55, spillway.Compactor: 270}
	for _, f := range spillway.Functions() {
		fn := function(t, tpl, f)
		values := map[string]any{
			"Runtime": "provided.al2023", "Handler": "bootstrap", "Architectures": []any{"arm64"}, "Timeout": timeouts[f],
			"LoggingConfig.LogFormat": "JSON", "TracingConfig": nil, "VpcConfig": nil,
			"ReservedConcurrentExecutions":             nil,
			"Environment.Variables.SPILLWAY_LOG_LEVEL": "info",
			"Environment.Variables.SPILLWAY_TABLE.Ref": tpl.one(t, "AWS::DynamoDB::Table", "").ID, "Environment.Variables.SPILLWAY_BUCKET.Ref": tpl.one(t, "AWS::S3::Bucket", "").ID,
		}
		if f == spillway.Compactor {
			values["ReservedConcurrentExecutions"] = 1
		}
		want(t, fn, values)
		logID, _ := target(t, fn.at("LoggingConfig.LogGroup"))
		want(t, tpl.Resources[logID], map[string]any{"RetentionInDays": 30})
	}
	hashes := make(map[string]bool)
	for _, fn := range tpl.all("AWS::Lambda::Function") {
		hashes[fmt.Sprint(fn.at("Code.S3Key"))] = true
	}
	if len(hashes) != 4 {
		t.Errorf("%d different archives of code, want 4", len(hashes))
	}
}

func testRoutes(t *testing.T, tpl *template) {
	owners := make(map[string]spillway.Function)
	for _, f := range spillway.Functions() {
		for _, r := range spillway.Routes(f) {
			key := r.Method + " " + r.Path
			if owners[key] != "" {
				t.Errorf("%s belongs to two functions", key)
			}
			owners[key] = f
		}
	}
	handled := make(map[string]bool)
	for _, r := range httpapi.Routes() {
		key := r.Method + " " + r.Pattern
		handled[key] = true
		if owners[key] == "" && r.Pattern != "/metrics" { // the local server's
			t.Errorf("no function answers %s", key)
		}
	}
	for key, f := range owners {
		if !handled[key] {
			t.Errorf("%s leads to %s, whose handler does not know it", key, f)
		}
	}
	// What writes a body needs the right to put an object, which consume must not have.
	if f := owners["PATCH /v1/topics/{topic}/delayed/{id}"]; f != spillway.Produce {
		t.Errorf("an edit of a delayed message leads to %s", f)
	}
	routes := tpl.all("AWS::ApiGatewayV2::Route")
	if len(routes) != len(owners) {
		t.Errorf("%d routes, want %d", len(routes), len(owners))
	}
	for _, route := range routes {
		key := fmt.Sprint(route.at("RouteKey"))
		if route.at("AuthorizationType") != "AWS_IAM" {
			t.Errorf("%s: authorization %v", key, route.at("AuthorizationType"))
		}
		integrationID, _ := target(t, route.at("Target"))
		integration := tpl.Resources[integrationID]
		want(t, integration, map[string]any{"PayloadFormatVersion": "2.0", "IntegrationType": "AWS_PROXY"})
		if id, _ := target(t, integration.at("IntegrationUri")); id != function(t, tpl, owners[key]).ID {
			t.Errorf("%s goes to %s, want %s", key, id, owners[key])
		}
	}
}

func testStage(t *testing.T, tpl *template) {
	stage := tpl.one(t, "AWS::ApiGatewayV2::Stage", "")
	want(t, stage, map[string]any{
		"StageName": "$default", "AutoDeploy": true,
		"DefaultRouteSettings.ThrottlingRateLimit": 2000, "DefaultRouteSettings.ThrottlingBurstLimit": 2000,
	})
	logs, rest := target(t, stage.at("AccessLogSettings.DestinationArn"))
	if tpl.Resources[logs].Type != "AWS::Logs::LogGroup" || strings.HasSuffix(rest, "*") {
		t.Errorf("access logs go to %v", stage.at("AccessLogSettings.DestinationArn"))
	}
	format, _ := stage.at("AccessLogSettings.Format").(string)
	var fields map[string]string
	if err := json.Unmarshal([]byte(format), &fields); err != nil || fields["request_id"] != "$context.requestId" {
		t.Errorf("the access log's format is %s: %v", format, err)
	}
}

func testSchedules(t *testing.T, tpl *template) {
	rates := map[spillway.Function]string{spillway.Leader: "rate(1 minute)", spillway.Compactor: "rate(5 minutes)"}
	if n := len(tpl.all("AWS::Scheduler::Schedule")); n != len(rates) {
		t.Errorf("%d schedules, want %d", n, len(rates))
	}
	for f, rate := range rates {
		fn := function(t, tpl, f)
		name := string(f)
		schedule := tpl.one(t, "AWS::Scheduler::Schedule", strings.ToUpper(name[:1])+name[1:])
		want(t, schedule, map[string]any{
			"ScheduleExpression": rate, "FlexibleTimeWindow.Mode": "OFF", "State": nil,
			"Target.RetryPolicy.MaximumRetryAttempts": 0, "Target.Input": spillway.ScheduleInput,
		})
		if id, _ := target(t, schedule.at("Target.Arn")); id != fn.ID {
			t.Errorf("the schedule of %s calls %s", f, id)
		}
		want(t, tpl.one(t, "AWS::Lambda::EventInvokeConfig", strings.ToUpper(name[:1])+name[1:]), map[string]any{"MaximumRetryAttempts": 0})
	}
}

func testAlarms(t *testing.T, tpl *template) {
	alarms := tpl.all("AWS::CloudWatch::Alarm")
	if len(alarms) != 13 {
		t.Errorf("%d alarms, want 13", len(alarms))
	}
	table := tpl.one(t, "AWS::DynamoDB::Table", "").ID
	own := []any{
		map[string]any{"Name": "Function", "Value": "leader"}, map[string]any{"Name": "Table", "Value": map[string]any{"Ref": table}},
	}
	want(t, tpl.one(t, "AWS::CloudWatch::Alarm", "OldestMessageTooOld"), map[string]any{
		"Namespace": emf.Namespace, "MetricName": emf.OldestMessageAge, "Statistic": "Maximum", "Dimensions": own,
		"Threshold": 900, "EvaluationPeriods": 5, "Period": 60, "TreatMissingData": "notBreaching",
	})
	want(t, tpl.one(t, "AWS::CloudWatch::Alarm", "LeaderNotRun"), map[string]any{
		"Namespace": emf.Namespace, "MetricName": emf.Runs, "Dimensions": own, "ComparisonOperator": "LessThanThreshold",
		"Threshold": 1, "EvaluationPeriods": 5, "Period": 60, "TreatMissingData": "breaching",
	})
	for id, name := range map[string]string{"TableReadsThrottled": "ReadThrottleEvents", "TableWritesThrottled": "WriteThrottleEvents"} {
		want(t, tpl.one(t, "AWS::CloudWatch::Alarm", id), map[string]any{
			"Namespace": "AWS/DynamoDB", "MetricName": name, "Threshold": 0,
			"Dimensions": []any{map[string]any{"Name": "TableName", "Value": map[string]any{"Ref": table}}},
		})
	}
	want(t, tpl.one(t, "AWS::CloudWatch::Alarm", "ApiErrors"), map[string]any{"MetricName": "5xx"})
	for _, f := range spillway.Functions() {
		name := string(f)
		for suffix, metric := range map[string]string{"Errors": "Errors", "Throttled": "Throttles"} {
			alarm := tpl.one(t, "AWS::CloudWatch::Alarm", strings.ToUpper(name[:1])+name[1:]+suffix)
			want(t, alarm, map[string]any{
				"Namespace": "AWS/Lambda", "MetricName": metric,
				"Dimensions": []any{map[string]any{"Name": "FunctionName", "Value": map[string]any{"Ref": function(t, tpl, f).ID}}},
			})
		}
	}
	if n := len(tpl.all("AWS::CloudWatch::Dashboard")); n != 1 {
		t.Errorf("%d dashboards, want one", n)
	}
}

// TestTwoStacks puts two deployments into one app: nothing of one may have a name that the other has.
func TestTwoStacks(t *testing.T) {
	both := synth(t, spillway.Props{}, spillway.Props{})
	for _, tpl := range both {
		for id, r := range tpl.Resources {
			for key, value := range r.Properties {
				named := key == "Name" || strings.HasSuffix(key, "Name") && key != "StageName" && key != "FunctionName"
				// The API's name is a label; several may have the same.
				shared := r.Type == "AWS::ApiGatewayV2::Api" || r.Type == "AWS::CloudWatch::Alarm" && key == "MetricName"
				if _, literal := value.(string); named && literal && !shared {
					t.Errorf("%s (%s) has the name %s=%v: a second deployment in the account would collide", id, r.Type, key, value)
				}
			}
		}
	}
	if a, b := len(both[0].Resources), len(both[1].Resources); a != b {
		t.Errorf("%d and %d resources, want the same", a, b)
	}
}

// TestOptions turns everything from its default.
func TestOptions(t *testing.T) {
	tpl := synth(t, spillway.Props{
		Architecture: spillway.AMD64, DestroyData: true, UploadExpiry: 400 * 24 * time.Hour,
		JWT:         &spillway.JWT{Issuer: "https://issuer.example", Audience: []string{"spillway"}, Scopes: []string{"queue"}},
		CORSOrigins: []string{"https://app.example"}, RateLimit: 10, BurstLimit: 20,
		Leader:    spillway.FunctionProps{MemoryMiB: 300, Timeout: 50 * time.Second, Concurrency: 1},
		Compactor: spillway.FunctionProps{Concurrency: spillway.Unreserved},
		LogLevel:  "debug", Tracing: true, OldestMessageAge: time.Hour, NoDashboard: true,
	})[0]
	bucket, table := tpl.one(t, "AWS::S3::Bucket", ""), tpl.one(t, "AWS::DynamoDB::Table", "")
	if bucket.DeletionPolicy != "Delete" || table.DeletionPolicy != "Delete" {
		t.Errorf("deletion policies %s and %s, want both to go", bucket.DeletionPolicy, table.DeletionPolicy)
	}
	want(t, table, map[string]any{"DeletionProtectionEnabled": false})
	want(t, bucket, map[string]any{
		"LifecycleConfiguration.Rules.1.Prefix": "uploads/", "LifecycleConfiguration.Rules.1.ExpirationInDays": 400,
		"CorsConfiguration.CorsRules.0.AllowedOrigins.0": "https://app.example",
	})
	tpl.one(t, "Custom::S3AutoDeleteObjects", "")
	want(t, function(t, tpl, spillway.Leader), map[string]any{
		"MemorySize": 300, "Timeout": 50, "ReservedConcurrentExecutions": 1, "Architectures": []any{"x86_64"}, "TracingConfig.Mode": "Active",
		"Environment.Variables.SPILLWAY_LOG_LEVEL": "debug",
	})
	want(t, function(t, tpl, spillway.Compactor), map[string]any{"ReservedConcurrentExecutions": nil})
	authorizer := tpl.one(t, "AWS::ApiGatewayV2::Authorizer", "")
	want(t, authorizer, map[string]any{
		"AuthorizerType": "JWT", "JwtConfiguration.Issuer": "https://issuer.example", "JwtConfiguration.Audience": []any{"spillway"},
		"IdentitySource": []any{"$request.header.Authorization"},
	})
	for _, route := range tpl.all("AWS::ApiGatewayV2::Route") {
		want(t, route, map[string]any{"AuthorizationType": "JWT", "AuthorizerId.Ref": authorizer.ID, "AuthorizationScopes": []any{"queue"}})
	}
	want(t, tpl.one(t, "AWS::ApiGatewayV2::Api", ""), map[string]any{"CorsConfiguration.AllowOrigins": []any{"https://app.example"}})
	want(t, tpl.one(t, "AWS::CloudWatch::Alarm", "OldestMessageTooOld"), map[string]any{"Threshold": 3600})
	if n := len(tpl.all("AWS::CloudWatch::Dashboard")); n != 0 {
		t.Errorf("%d dashboards, want none", n)
	}
}

// TestExistingDataAndAlarmTopic adopts a bucket and table of an earlier deployment.
func TestExistingDataAndAlarmTopic(t *testing.T) {
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir()), BuiltinCloudFormationValidation: jsii.Bool(false)})
	stack := awscdk.NewStack(app, jsii.String("A"), nil)
	s, err := spillway.New(stack, "Spillway", &spillway.Props{
		CodeDir: codeDir(t), Existing: &spillway.Existing{BucketName: "old-bucket", TableName: "old-table"},
		AlarmTopic: awssns.Topic_FromTopicArn(stack, jsii.String("Topic"), jsii.String("arn:aws:sns:us-east-1:000000000000:ops")),
	})
	if err != nil {
		t.Fatal(err)
	}
	if *s.Table.TableName() != "old-table" || *s.Bucket.BucketName() != "old-bucket" || len(s.Functions) != 4 {
		t.Errorf("table %s, bucket %s, %d functions", *s.Table.TableName(), *s.Bucket.BucketName(), len(s.Functions))
	}
	text, err := json.Marshal(app.Synth(nil).GetStackByName(jsii.String("A")).Template())
	if err != nil {
		t.Fatal(err)
	}
	tpl := new(template)
	if err := json.Unmarshal(text, tpl); err != nil {
		t.Fatal(err)
	}
	for _, typ := range []string{"AWS::S3::Bucket", "AWS::DynamoDB::Table"} {
		if n := len(tpl.all(typ)); n != 0 {
			t.Errorf("%d of type %s, want none", n, typ)
		}
	}
	for _, alarm := range tpl.all("AWS::CloudWatch::Alarm") {
		topic := []any{"arn:aws:sns:us-east-1:000000000000:ops"}
		want(t, alarm, map[string]any{"AlarmActions": topic, "OKActions": topic})
	}
}

// TestBadProps gives New what it must refuse before it has added anything.
func TestBadProps(t *testing.T) {
	dir := codeDir(t)
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
	for name, tc := range map[string]struct {
		props *spillway.Props
		want  []string
	}{
		"none":          {nil, []string{"props are missing"}},
		"no code":       {&spillway.Props{}, []string{"CodeDir is missing"}},
		"not built":     {&spillway.Props{CodeDir: t.TempDir()}, []string{"leader is not built"}},
		"architecture":  {&spillway.Props{CodeDir: dir, Architecture: "mips"}, []string{"Architecture", "mips"}},
		"half a day":    {&spillway.Props{CodeDir: dir, UploadExpiry: 12 * time.Hour}, []string{"whole days"}},
		"half existing": {&spillway.Props{CodeDir: dir, Existing: &spillway.Existing{TableName: "t"}}, []string{"a bucket and a table"}},
		"destroy what is not ours": {
			&spillway.Props{CodeDir: dir, DestroyData: true, Existing: &spillway.Existing{TableName: "t", BucketName: "b"}},
			[]string{"DestroyData"},
		},
		"several": {
			&spillway.Props{
				CodeDir: dir, LogLevel: "loud", JWT: &spillway.JWT{}, RateLimit: -1, OldestMessageAge: time.Second,
				Leader: spillway.FunctionProps{MemoryMiB: 1, Timeout: time.Hour, Concurrency: -2},
			},
			[]string{"LogLevel", "JWT.Issuer", "JWT.Audience", "RateLimit", "OldestMessageAge", "leader: MemoryMiB", "leader: Timeout", "leader: Concurrency"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			stack := awscdk.NewStack(app, jsii.String(strings.ReplaceAll(name, " ", "-")), nil)
			_, err := spillway.New(stack, "Spillway", tc.props)
			if err == nil {
				t.Fatal("no error")
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			if children := *stack.Node().Children(); len(children) > 0 {
				t.Errorf("%d constructs were added", len(children))
			}
		})
	}
}
