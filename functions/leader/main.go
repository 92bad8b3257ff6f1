// Command leader is the Lambda function of the control plane: it answers the API calls on topics, and, called
// by the schedule or woken by a producer, lets segments follow their load. The schedule has it promote
// delayed messages that no claim has promoted, too, and tell how long the oldest message has been waiting.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/spillway-mq/spillway/functions/internal/host"
)

func main() {
	config := host.Must(host.FromEnvironment("leader", os.Getenv))
	lambda.Start(leader{host.Must(host.Open(config, os.Stdout)).API()}.handle)
}

type leader struct{ *host.API }

// scheduled is what tells the schedule's event, and a producer's that wakes the leader, from one of API
// Gateway.
type scheduled struct {
	Source string `json:"source"`
}

func (l leader) handle(ctx context.Context, event json.RawMessage) (any, error) {
	var s scheduled
	if err := json.Unmarshal(event, &s); err == nil {
		switch s.Source {
		case host.ScheduleSource:
			return nil, errors.Join(l.Lead(ctx), l.Promote(ctx))
		case host.WakeSource:
			return nil, l.Lead(ctx)
		}
	}
	var call events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(event, &call); err != nil {
		return host.BadEvent(), nil //nolint:nilerr // the caller is answered that the event is none
	}
	return l.HTTP(ctx, call)
}
