package sqs

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// query calls in the Query protocol, forms that are answered with XML, as the SDKs did until the end of 2023. Those
// of today do not, and the last that did does not work with the SDK's core that Spillway needs.
type query struct {
	endpoint string
	client   *http.Client
}

func newQuery(endpoint string, client *http.Client) api { return &query{endpoint, client} }

// answer is what is used of all answers.
type answer struct {
	QueueURL string      `xml:"CreateQueueResult>QueueUrl"`
	Received []message   `xml:"ReceiveMessageResult>Message"`
	Sent     []struct{}  `xml:"SendMessageBatchResult>SendMessageBatchResultEntry"`
	Deleted  []struct{}  `xml:"DeleteMessageBatchResult>DeleteMessageBatchResultEntry"`
	Failure  *queryError `xml:"Error"`
}

type queryError struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
}

func (q *query) call(ctx context.Context, form url.Values) (a answer, err error) {
	form.Set("Version", "2012-11-05")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, q.endpoint, strings.NewReader(form.Encode()))
	if err != nil {
		return a, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := q.client.Do(request)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return a, err
	}
	if err := xml.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %s: %w", form.Get("Action"), response.Status, err)
	}
	if a.Failure != nil || response.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%s: %s: %+v", form.Get("Action"), response.Status, a.Failure)
	}
	return a, nil
}

func (q *query) ready(ctx context.Context) error {
	_, err := q.call(ctx, url.Values{"Action": {"ListQueues"}})
	return err
}

func (q *query) create(ctx context.Context, name string) (string, error) {
	a, err := q.call(ctx, url.Values{
		"Action": {"CreateQueue"}, "QueueName": {name}, "Attribute.1.Name": {"VisibilityTimeout"}, "Attribute.1.Value": {strconv.Itoa(visibility)},
	})
	return a.QueueURL, err
}

func (q *query) send(ctx context.Context, queue string, bodies [][]byte, seconds int) error {
	form := url.Values{"Action": {"SendMessage"}, "QueueUrl": {queue}}
	if len(bodies) == 1 {
		form.Set("MessageBody", string(bodies[0]))
		if seconds > 0 {
			form.Set("DelaySeconds", strconv.Itoa(seconds))
		}
		_, err := q.call(ctx, form)
		return err
	}
	form.Set("Action", "SendMessageBatch")
	for i, body := range bodies {
		entry := "SendMessageBatchRequestEntry." + strconv.Itoa(i+1)
		form.Set(entry+".Id", strconv.Itoa(i))
		form.Set(entry+".MessageBody", string(body))
		if seconds > 0 {
			form.Set(entry+".DelaySeconds", strconv.Itoa(seconds))
		}
	}
	a, err := q.call(ctx, form)
	if err == nil && len(a.Sent) != len(bodies) {
		err = fmt.Errorf("%d of %d entries were accepted", len(a.Sent), len(bodies))
	}
	return err
}

func (q *query) receive(ctx context.Context, queue string) ([]message, error) {
	a, err := q.call(ctx, url.Values{
		"Action": {"ReceiveMessage"}, "QueueUrl": {queue}, "MaxNumberOfMessages": {strconv.Itoa(maxEntries)}, "WaitTimeSeconds": {strconv.Itoa(waitSeconds)},
	})
	return a.Received, err
}

func (q *query) remove(ctx context.Context, queue string, messages []message) error {
	form := url.Values{"Action": {"DeleteMessageBatch"}, "QueueUrl": {queue}}
	for i := range messages {
		entry := "DeleteMessageBatchRequestEntry." + strconv.Itoa(i+1)
		form.Set(entry+".Id", strconv.Itoa(i))
		form.Set(entry+".ReceiptHandle", messages[i].Receipt)
	}
	a, err := q.call(ctx, form)
	if err == nil && len(a.Deleted) != len(messages) {
		err = fmt.Errorf("%d of %d entries were deleted", len(a.Deleted), len(messages))
	}
	return err
}
