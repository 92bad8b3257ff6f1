// Command compactor is the Lambda function that the schedule calls to merge small batches and to delete what no
// ref reaches. It takes one step after another until its time is up; the next run goes on.
package main

import (
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/spillway-mq/spillway/functions/internal/host"
	"github.com/spillway-mq/spillway/pkg/compact"
)

func main() {
	config := host.Must(host.FromEnvironment("compactor", os.Getenv))
	config.Compact = host.Must(compact.ParseTuning(os.Getenv("SPILLWAY_COMPACT")))
	lambda.Start(host.Must(host.Open(config, os.Stdout)).Compact)
}
