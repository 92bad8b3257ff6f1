// Package survey finds out about a deployment in AWS what package doctor judges.
//
// Vocabulary: a place is where the deployment is, by names; facts are doctor's.
//
// Invariants: it only reads. Each fact is asked for by itself, so that what one answer lacks takes nothing from the
// others; the parts are asked side by side. A trouble's text is one line, without request ids.
//
// Non-goals: judging (package doctor), waiting for anything to change.
package survey

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/scheduler"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
	"github.com/spillway-mq/spillway/pkg/client"
)

// Place says where the deployment is.
type Place struct {
	// Stack is the CloudFormation stack; empty for none. Its outputs stand in for what follows.
	Stack string
	// Table, Bucket and URL win over the stack's.
	Table, Bucket, URL string
	// Emulated: AWS is an emulator, so the stack's URL leads to nobody.
	Emulated bool
	// PathStyle puts the bucket into the path of S3's URLs.
	PathStyle bool
}

// Options are the arguments of Survey besides the place.
type Options struct {
	// Program is this program's version.
	Program string
	// Dial gives a client of the API at a URL.
	Dial func(ctx context.Context, url string) (*client.Client, error)
	// Document is the OpenAPI document that this program knows.
	Document []byte
	// Clock tells the time.
	Clock func() time.Time
}

// surveyor asks. What its fields hold is set before the parts are asked side by side.
type surveyor struct {
	o         Options
	place     Place
	cfg       aws.Config
	facts     *doctor.Facts
	resources map[string]string // physical ids of the stack's resources, by the ends of their logical ids

	cloudformation *cloudformation.Client
	cloudwatch     *cloudwatch.Client
	dynamodb       *dynamodb.Client
	iam            *iam.Client
	lambda         *lambda.Client
	logs           *cloudwatchlogs.Client
	s3             *s3.Client
	scheduler      *scheduler.Client
}

// Survey finds the facts. It does not fail: what cannot be found out is a trouble in them.
func Survey(ctx context.Context, cfg aws.Config, p Place, o Options) *doctor.Facts {
	s := &surveyor{
		o: o, place: p, cfg: cfg,
		facts: &doctor.Facts{
			Now: o.Clock(), Program: o.Program, Region: cfg.Region, TableName: p.Table, BucketName: p.Bucket, API: doctor.API{URL: p.URL},
		},
		resources:      map[string]string{},
		cloudformation: cloudformation.NewFromConfig(cfg),
		cloudwatch:     cloudwatch.NewFromConfig(cfg),
		dynamodb:       dynamodb.NewFromConfig(cfg),
		iam:            iam.NewFromConfig(cfg),
		lambda:         lambda.NewFromConfig(cfg),
		logs:           cloudwatchlogs.NewFromConfig(cfg),
		s3:             s3.NewFromConfig(cfg, func(so *s3.Options) { so.UsePathStyle = p.PathStyle }),
		scheduler:      scheduler.NewFromConfig(cfg),
	}
	s.whoAmI(ctx)
	if s.facts.Caller.Trouble != nil {
		// Every other call would fail for the same reason, and take its time to.
		s.forsake()
		return s.facts
	}
	s.stack(ctx)
	var g errgroup.Group
	for _, part := range []func(context.Context){s.api, s.table, s.bucket, s.functions, s.schedules, s.alarms} {
		g.Go(func() error { part(ctx); return nil })
	}
	_ = g.Wait() // the parts give no errors
	return s.facts
}

// forsake gives every fact but the caller the same trouble.
func (s *surveyor) forsake() {
	t := unasked("see caller")
	f := s.facts
	f.Skew.Trouble, f.Stack.Trouble, f.API.Same.Trouble, f.Table.Trouble, f.Bucket.Trouble = t, t, t, t, t
	f.LeaderRan.Trouble, f.Alarms.Trouble, f.Invoke.Trouble = t, t, t
	f.API.Answers = each(doctor.Answering(), doctor.Fact[string]{Trouble: t})
	f.Functions = each(doctor.All(), doctor.Fact[doctor.Lambda]{Trouble: t})
	f.Schedules = each(doctor.Scheduled(), doctor.Fact[doctor.Schedule]{Trouble: t})
	f.Refused = each(doctor.All(), doctor.Fact[[]doctor.Permission]{Trouble: t})
}

func each[T any](list []doctor.Function, v T) map[doctor.Function]T {
	out := map[doctor.Function]T{}
	for _, fn := range list {
		out[fn] = v
	}
	return out
}

func (s *surveyor) whoAmI(ctx context.Context) {
	out, err := sts.NewFromConfig(s.cfg).GetCallerIdentity(ctx, nil)
	if err != nil {
		t := troubleOf(err)
		s.facts.Caller.Trouble = t
		var e smithy.APIError
		if !errors.As(err, &e) && strings.Contains(err.Error(), "get identity") {
			t.Kind = doctor.Unasked
			t.Text = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run: aws configure (or: aws sso login)"
		}
		return
	}
	s.facts.Caller.Value = doctor.Caller{Account: aws.ToString(out.Account), ARN: aws.ToString(out.Arn)}
	if at, ok := awsmiddleware.GetServerTime(out.ResultMetadata); ok {
		got, _ := awsmiddleware.GetResponseAt(out.ResultMetadata)
		s.facts.Skew.Value = at.Sub(got)
	} else {
		s.facts.Skew.Trouble = &doctor.Trouble{Text: "the answer has no date"}
	}
}

// suffix is the hash that the CDK puts behind the ids of resources.
var suffix = regexp.MustCompile(`[0-9A-F]{8}$`)

func (s *surveyor) stack(ctx context.Context) {
	f := s.facts
	if s.place.Stack == "" {
		f.Stack.Trouble = unasked("name the stack with --stack")
		return
	}
	f.Stack.Value.Name = s.place.Stack
	out, err := s.cloudformation.DescribeStacks(ctx, &cloudformation.DescribeStacksInput{StackName: &s.place.Stack})
	if err == nil && len(out.Stacks) == 0 {
		err = errAbsent
	}
	if err != nil {
		f.Stack.Trouble = troubleOf(err)
		return
	}
	stack := &out.Stacks[0]
	f.Stack.Value.Status = string(stack.StackStatus)
	f.Stack.Value.Changed = aws.ToTime(stack.CreationTime)
	if stack.LastUpdatedTime != nil {
		f.Stack.Value.Changed = *stack.LastUpdatedTime
	}
	url := ""
	for name, to := range map[string]*string{"TableName": &f.TableName, "BucketName": &f.BucketName, "ApiUrl": &url, "Version": &f.Stack.Value.Version} {
		for _, o := range stack.Outputs {
			if aws.ToString(o.OutputKey) == name && *to == "" {
				*to = aws.ToString(o.OutputValue)
			}
		}
	}
	if f.API.URL == "" && !s.place.Emulated {
		f.API.URL = url
	}
	pages := cloudformation.NewListStackResourcesPaginator(s.cloudformation, &cloudformation.ListStackResourcesInput{StackName: &s.place.Stack})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			f.Stack.Trouble = troubleOf(err)
			return
		}
		for _, r := range page.StackResourceSummaries {
			id := aws.ToString(r.ResourceType) + " " + suffix.ReplaceAllString(aws.ToString(r.LogicalResourceId), "")
			s.resources[id] = aws.ToString(r.PhysicalResourceId)
		}
	}
}

// resource finds the stack's resource of a type whose id ends in end: constructs around it come first.
func (s *surveyor) resource(kind, end string) (physical string, t *doctor.Trouble) {
	if st := s.facts.Stack.Trouble; st != nil {
		if st.Kind == doctor.Unasked {
			return "", st
		}
		return "", unasked("see stack")
	}
	for id, physical := range s.resources {
		if strings.HasPrefix(id, kind+" ") && strings.HasSuffix(id, end) {
			return physical, nil
		}
	}
	return "", &doctor.Trouble{Kind: doctor.Absent, Text: "the stack has none"}
}

var errAbsent = errors.New("there is none")

func unasked(text string) *doctor.Trouble {
	return &doctor.Trouble{Kind: doctor.Unasked, Text: text}
}

// absentCodes are what services say where something is not there. CloudFormation has only a ValidationError.
var absentCodes = regexp.MustCompile(`NotFound|NoSuch|^ValidationError$|^404$`)

// deniedCodes are what services say to those who may not.
var deniedCodes = regexp.MustCompile(`AccessDenied|Unauthorized|NotAuthorized|Forbidden|^403$`)

// troubleOf makes a trouble of an error.
func troubleOf(err error) *doctor.Trouble {
	t := &doctor.Trouble{Text: strings.Join(strings.Fields(err.Error()), " ")}
	var e smithy.APIError
	var status *awshttp.ResponseError
	code := ""
	switch {
	case errors.Is(err, errAbsent):
		t.Kind = doctor.Absent
		return t
	case errors.As(err, &e):
		code, t.Text = e.ErrorCode(), e.ErrorCode()+": "+strings.Join(strings.Fields(e.ErrorMessage()), " ")
	}
	switch {
	case absentCodes.MatchString(code):
		t.Kind = doctor.Absent
	case deniedCodes.MatchString(code):
		t.Kind = doctor.Denied
	case errors.As(err, &status) && status.HTTPStatusCode() == 404: // HEAD has no body
		t.Kind = doctor.Absent
	case errors.As(err, &status) && status.HTTPStatusCode() == 403:
		t.Kind = doctor.Denied
	}
	return t
}

// ask makes a fact of a call and of what it is read by.
func ask[Out, T any](out Out, err error, read func(Out) T) doctor.Fact[T] {
	if err != nil {
		return doctor.Fact[T]{Trouble: troubleOf(err)}
	}
	return doctor.Fact[T]{Value: read(out)}
}
