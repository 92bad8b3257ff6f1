// Command produce is the Lambda function that takes messages in: messages, uploads and references. It decodes the event, calls the same handler as the local server, and
// encodes the answer.
package main

import (
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/spillway-mq/spillway/functions/internal/host"
)

func main() {
	config := host.Must(host.FromEnvironment("produce", os.Getenv))
	lambda.Start(host.Must(host.Open(config, os.Stdout)).HTTP)
}
