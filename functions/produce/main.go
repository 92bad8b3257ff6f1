// Command produce is the Lambda function that takes messages in: messages, uploads and references. It decodes the event, calls the same handler as the local server, and
// encodes the answer. What its callers need not wait for, rolls and waking the leader, it does afterwards.
package main

import (
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/spillway-mq/spillway/functions/internal/afterwards"
	"github.com/spillway-mq/spillway/functions/internal/host"
)

func main() {
	config := host.Must(host.FromEnvironment("produce", os.Getenv))
	after := afterwards.Register(config.RuntimeAPI, config.Logger(os.Stdout))
	config.Later = after.Later()
	h := host.Must(host.Open(config, os.Stdout))
	lambda.Start(after.Handler(h.API().HTTP))
}
