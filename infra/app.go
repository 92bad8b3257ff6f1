package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/cxapi"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"

	"github.com/spillway-mq/spillway/infra/spillway"
)

// cdkJSON is the file that the CDK's command line reads. It is compiled in so that the feature flags
// in it hold when the app is run directly, too, and both ways write the same template.
//
//go:embed cdk.json
var cdkJSON []byte

// appOptions are what tests choose otherwise.
type appOptions struct {
	// Validate checks the template against CloudFormation's schemas.
	Validate bool
	// Outdir is where to write; empty is what the environment says.
	Outdir string
}

// synth writes the template. Findings of cdk-nag go to w, and an error tells that there are some.
func synth(given map[string]any, o appOptions, w io.Writer) error {
	app, err := newApp(given, o)
	if err != nil {
		return err
	}
	if _, err := addStack(app); err != nil {
		return err
	}
	return finish(app, w)
}

// finish writes what app holds and looks through what cdk-nag said to it: the CDK's command line does
// that, too, but run directly nobody else would. Errors make Synth itself fail, which in Go is a panic,
// after it has printed them; warnings do not.
func finish(app awscdk.App, w io.Writer) (err error) {
	defer func() {
		if failed := recover(); failed != nil {
			err = fmt.Errorf("synth: %v", failed)
		}
	}()
	found := remarks(app.Synth(nil))
	for _, line := range found {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%d findings: fix each, or accept it with a reason (infra/spillway/rights.go)", len(found))
	}
	return nil
}

// remarks lists the warnings and errors that were left on constructs.
//
//nolint:staticcheck // deprecated for a package that has no form in Go
func remarks(assembly cxapi.CloudAssembly) []string {
	var out []string
	for _, stack := range *assembly.Stacks() {
		for _, m := range *stack.Messages() {
			if m.Level != cxapi.SynthesisMessageLevel_INFO {
				out = append(out, fmt.Sprintf("%s: %s: %v", m.Level, *m.Id, m.Entry.Data))
			}
		}
	}
	return out
}

// newApp makes an app with cdk.json's context, and over it what was given. What the CDK's command line
// says wins over both.
func newApp(given map[string]any, o appOptions) (awscdk.App, error) {
	var file struct {
		Context map[string]any `json:"context"`
	}
	if err := json.Unmarshal(cdkJSON, &file); err != nil {
		return nil, fmt.Errorf("cdk.json: %w", err)
	}
	context := file.Context
	if context == nil {
		return nil, errors.New("cdk.json has no context")
	}
	maps.Copy(context, given)
	props := &awscdk.AppProps{
		Context:                         &context,
		AnalyticsReporting:              jsii.Bool(false),
		BuiltinCloudFormationValidation: jsii.Bool(o.Validate),
	}
	if o.Outdir != "" {
		props.Outdir = jsii.String(o.Outdir)
	}
	app := awscdk.NewApp(props)
	awscdk.Aspects_Of(app).Add(cdknag.NewAwsSolutionsChecks(&cdknag.NagPackProps{Reports: jsii.Bool(false)}), nil)
	return app, nil
}

// addStack adds the stack that the context describes.
func addStack(app awscdk.App) (awscdk.Stack, error) {
	cfg, err := readConfig(app.Node())
	if err != nil {
		return nil, err
	}
	stack := awscdk.NewStack(app, jsii.String(cfg.stack), &awscdk.StackProps{
		Description: jsii.String("Spillway: a message queue and log with no brokers"),
	})
	if cfg.alarmTopic != "" {
		cfg.props.AlarmTopic = awssns.Topic_FromTopicArn(stack, jsii.String("AlarmTopic"), jsii.String(cfg.alarmTopic))
	}
	s, err := spillway.New(stack, "Spillway", &cfg.props)
	if err != nil {
		return nil, err
	}
	if cfg.props.DestroyData {
		acceptDestroyer(app, stack)
	}
	for _, out := range []struct {
		id, what string
		value    *string
	}{
		{"ApiUrl", "Where the API answers", s.URL()},
		{"TableName", "The table: records of topics, segments and subscriptions", s.Table.TableName()},
		{"BucketName", "The bucket: messages", s.Bucket.BucketName()},
		{"Version", "What was deployed", jsii.String(cfg.version)},
	} {
		awscdk.NewCfnOutput(stack, jsii.String(out.id), &awscdk.CfnOutputProps{
			Description: jsii.String(out.what), Value: out.value,
		})
	}
	return stack, nil
}

// acceptDestroyer silences cdk-nag about the function that empties the bucket, which is the CDK's own
// and only there with data=destroy.
func acceptDestroyer(app awscdk.App, stack awscdk.Stack) {
	reason := jsii.String("The CDK's own function, which empties the bucket before it is deleted; only there with data=destroy.")
	var sups []*cdknag.NagPackSuppression
	for _, rule := range []string{"AwsSolutions-IAM4", "AwsSolutions-IAM5", "AwsSolutions-L1"} {
		sups = append(sups, &cdknag.NagPackSuppression{Id: jsii.String(rule), Reason: reason})
	}
	const provider = "Custom::S3AutoDeleteObjectsCustomResourceProvider"
	if child := stack.Node().TryFindChild(jsii.String(provider)); child != nil {
		cdknag.NagSuppressions_AddResourceSuppressions(child, &sups, jsii.Bool(true))
	}
}
