package spillway

import (
	"path/filepath"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/jsii-runtime-go"
)

// descriptions say in the console what a function is for.
var descriptions = map[Function]string{
	Produce:   "Spillway: accepts messages and references, presigns uploads, edits delayed messages",
	Consume:   "Spillway: claims, acks, reads, subscriptions and delayed messages",
	Leader:    "Spillway: topics, and once a minute scaling and promotion",
	Compactor: "Spillway: merges batches and deletes what nothing refers to",
}

// id is f's construct id.
func (f Function) id() string { return strings.ToUpper(string(f[:1])) + string(f[1:]) }

func (s *Spillway) addFunction(f Function) awslambda.Function {
	set := s.props.function(f)
	logs := awslogs.NewLogGroup(s.Construct, jsii.String(f.id()+"Logs"), &awslogs.LogGroupProps{
		Retention:     s.props.LogRetention,
		RemovalPolicy: awscdk.RemovalPolicy_DESTROY,
	})
	role := s.role(f, logs)
	props := &awslambda.FunctionProps{
		Description:  jsii.String(descriptions[f]),
		Code:         awslambda.Code_FromAsset(jsii.String(filepath.Join(s.props.CodeDir, string(f))), nil),
		Handler:      jsii.String("bootstrap"),
		Runtime:      awslambda.Runtime_PROVIDED_AL2023(),
		Architecture: awslambda.Architecture_ARM_64(),
		MemorySize:   jsii.Number(set.MemoryMiB),
		Timeout:      awscdk.Duration_Seconds(jsii.Number(set.Timeout.Seconds())),
		Role:         role,
		LogGroup:     logs,
		// The functions log JSON. Which lines is theirs to decide, by SPILLWAY_LOG_LEVEL: TRACE
		// lets all pass, metrics included. WARN leaves out the platform's three lines per call,
		// whose ingestion would cost as much as the call.
		LoggingFormat:         awslambda.LoggingFormat_JSON,
		ApplicationLogLevelV2: awslambda.ApplicationLogLevel_TRACE,
		SystemLogLevelV2:      awslambda.SystemLogLevel_WARN,
		Tracing:               awslambda.Tracing_DISABLED,
		Environment: &map[string]*string{
			"SPILLWAY_TABLE":     s.Table.TableName(),
			"SPILLWAY_BUCKET":    s.Bucket.BucketName(),
			"SPILLWAY_LOG_LEVEL": jsii.String(s.props.LogLevel),
		},
	}
	if s.props.Architecture == AMD64 {
		props.Architecture = awslambda.Architecture_X86_64()
	}
	if s.props.Tracing {
		props.Tracing = awslambda.Tracing_ACTIVE
	}
	if set.Concurrency > 0 {
		props.ReservedConcurrentExecutions = jsii.Number(set.Concurrency)
	}
	if f == Produce || f == Consume {
		(*props.Environment)["SPILLWAY_LEADER"] = s.Functions[Leader].FunctionName()
	}
	if f == Compactor && s.props.Compact != "" {
		(*props.Environment)["SPILLWAY_COMPACT"] = jsii.String(s.props.Compact)
	}
	if f == Leader || f == Compactor {
		// The scheduler's calls are asynchronous. One that failed, or waited for its turn for as
		// long as its period, is overtaken by the next.
		props.RetryAttempts = jsii.Number(0)
		props.MaxEventAge = awscdk.Duration_Minutes(jsii.Number(1))
	}
	fn := awslambda.NewFunction(s.Construct, jsii.String(f.id()), props)
	if s.props.Tracing {
		// Only now: the function has added a policy of its own to the role.
		s.accept(role, finding{
			rule: "AwsSolutions-IAM5",
			what: []string{`^Resource::\*$`},
			why:  "X-Ray's actions know no resources. Off unless tracing is asked for.",
		})
	}
	return fn
}

// role is f's own, with its rights and no managed policy.
func (s *Spillway) role(f Function, logs awslogs.LogGroup) awsiam.Role {
	role := awsiam.NewRole(s.Construct, jsii.String(f.id()+"Role"), &awsiam.RoleProps{
		AssumedBy:   awsiam.NewServicePrincipal(jsii.String("lambda.amazonaws.com"), nil),
		Description: jsii.String("What the function " + string(f) + " of Spillway may do"),
		InlinePolicies: &map[string]awsiam.PolicyDocument{
			"data": policy(s.statements(f)...),
			// The ARN of a log group ends in :*, for the streams in it.
			"log": policy(allow([]string{"logs:CreateLogStream", "logs:PutLogEvents"}, logs.LogGroupArn())),
		},
	})
	for _, r := range Rights(f) {
		if prefix, ok := strings.CutSuffix(r.On, "/*"); ok {
			s.accept(role, finding{
				rule: "AwsSolutions-IAM5",
				what: []string{`^Resource::.*\/` + prefix + `\/\*$`},
				why:  "Objects get random names; the function may touch those under " + prefix + "/ and no others.",
			})
		}
	}
	return role
}

func policy(statements ...awsiam.PolicyStatement) awsiam.PolicyDocument {
	return awsiam.NewPolicyDocument(&awsiam.PolicyDocumentProps{Statements: &statements})
}
