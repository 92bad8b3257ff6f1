// Command consume is the Lambda function that hands messages out: claims, acks, subscriptions, delayed messages and reading. It decodes the event, calls the same handler as the local server, and
// encodes the answer.
package main

import (
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/spillway-mq/spillway/functions/internal/host"
)

func main() {
	config := host.Must(host.FromEnvironment("consume", os.Getenv))
	lambda.Start(host.Must(host.Open(config, os.Stdout)).API().HTTP)
}
