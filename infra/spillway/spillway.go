package spillway

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Spillway is one deployment.
type Spillway struct {
	// Construct is the scope that everything below belongs to.
	Construct constructs.Construct

	Bucket awss3.IBucket
	Table  awsdynamodb.ITable
	// Functions has all four.
	Functions map[Function]awslambda.Function
	API       awsapigatewayv2.HttpApi
	Stage     awsapigatewayv2.HttpStage
	// Alarms are all alarms, by id.
	Alarms map[string]awscloudwatch.Alarm
	// Dashboard is nil with Props.NoDashboard.
	Dashboard awscloudwatch.Dashboard

	props *Props
	stack awscdk.Stack
}

// New adds a deployment to a stack. The error tells what is wrong with the props, or that a function
// was not built; then nothing was added.
func New(scope constructs.Construct, id string, props *Props) (*Spillway, error) {
	p, err := props.complete()
	if err != nil {
		return nil, err
	}
	for _, f := range Functions() {
		if _, err := os.Stat(filepath.Join(p.CodeDir, string(f), "bootstrap")); err != nil {
			return nil, fmt.Errorf("spillway: function %s is not built: %w", f, err)
		}
	}
	s := &Spillway{
		Construct: constructs.NewConstruct(scope, jsii.String(id)),
		Functions: make(map[Function]awslambda.Function, len(Functions())),
		Alarms:    make(map[string]awscloudwatch.Alarm),
		props:     p,
		stack:     awscdk.Stack_Of(scope),
	}
	s.addStorage()
	for _, f := range Functions() {
		s.Functions[f] = s.addFunction(f)
	}
	s.addAPI()
	s.addSchedules()
	s.addAlarms()
	if !p.NoDashboard {
		s.addDashboard()
	}
	return s, nil
}

// URL is where the API answers; it ends in a slash.
func (s *Spillway) URL() *string { return s.Stage.Url() }

func stringsOf(list []string) *[]*string {
	out := make([]*string, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return &out
}
