package sqs

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// sdk calls through aws-sdk-go-v2.
type sdk struct{ client *awssqs.Client }

func newSDK(endpoint string, client *http.Client) api {
	credentials := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "bench", SecretAccessKey: "bench"}, nil
	})
	return &sdk{client: awssqs.New(awssqs.Options{
		BaseEndpoint: aws.String(endpoint), Region: "us-east-1", Credentials: credentials, HTTPClient: client,
	})}
}

func (s *sdk) ready(ctx context.Context) error {
	_, err := s.client.ListQueues(ctx, &awssqs.ListQueuesInput{})
	return err
}

func (s *sdk) create(ctx context.Context, name string) (url string, err error) {
	made, err := s.client.CreateQueue(ctx, &awssqs.CreateQueueInput{
		QueueName: &name, Attributes: map[string]string{"VisibilityTimeout": strconv.Itoa(visibility)},
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(made.QueueUrl), nil
}

func (s *sdk) send(ctx context.Context, url string, bodies [][]byte, seconds int) error {
	delay := int32(seconds)
	if len(bodies) == 1 {
		_, err := s.client.SendMessage(ctx, &awssqs.SendMessageInput{QueueUrl: &url, MessageBody: aws.String(string(bodies[0])), DelaySeconds: delay})
		return err
	}
	entries := make([]types.SendMessageBatchRequestEntry, len(bodies))
	for i, body := range bodies {
		entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: aws.String(string(body)), DelaySeconds: delay}
	}
	answer, err := s.client.SendMessageBatch(ctx, &awssqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		return err
	}
	return refused(answer.Failed)
}

func refused(entries []types.BatchResultErrorEntry) error {
	if len(entries) == 0 {
		return nil
	}
	return fmt.Errorf("%d entries refused, the first: %s: %s", len(entries), aws.ToString(entries[0].Code), aws.ToString(entries[0].Message))
}

func (s *sdk) receive(ctx context.Context, url string) ([]message, error) {
	answer, err := s.client.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: maxEntries, WaitTimeSeconds: waitSeconds})
	if err != nil {
		return nil, err
	}
	messages := make([]message, len(answer.Messages))
	for i := range answer.Messages {
		messages[i] = message{Body: aws.ToString(answer.Messages[i].Body), Receipt: aws.ToString(answer.Messages[i].ReceiptHandle)}
	}
	return messages, nil
}

func (s *sdk) remove(ctx context.Context, url string, messages []message) error {
	entries := make([]types.DeleteMessageBatchRequestEntry, len(messages))
	for i := range messages {
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &messages[i].Receipt}
	}
	answer, err := s.client.DeleteMessageBatch(ctx, &awssqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
	if err != nil {
		return err
	}
	return refused(answer.Failed)
}
