package sqs

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/bench/internal/peer"
)

// TestCallsKeepToTheLimits: 10 messages and 256 KiB together.
func TestCallsKeepToTheLimits(t *testing.T) {
	sizes := func(n, size int) [][]byte {
		return slices.Repeat([][]byte{make([]byte, size)}, n)
	}
	cases := map[string]struct {
		bodies [][]byte
		want   int
	}{
		"by number": {sizes(100, 1000), 10}, "fewer": {sizes(3, 1000), 3}, "by size": {sizes(10, 100_000), 2},
		"just": {sizes(2, maxBytes/2), 2}, "one": {sizes(2, maxBytes), 1}, "too large alone": {sizes(1, maxBytes+1), 1},
	}
	for name, c := range cases {
		if got := fit(c.bodies); got != c.want {
			t.Errorf("%s: %d in a call, want %d", name, got, c.want)
		}
	}
}

func TestLargeBodiesAreRefused(t *testing.T) {
	_, err := (&server{}).Queue(t.Context(), peer.Spec{Size: maxBytes + 1, Groups: 1})
	if !errors.Is(err, peer.ErrNoFeature) {
		t.Errorf("%v", err)
	}
}

// queues answers the Query protocol as goaws does, for one queue.
type queues struct {
	held    []string
	actions []string
}

func (q *queues) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	action := r.PostForm.Get("Action")
	q.actions = append(q.actions, action+r.PostForm.Get("DelaySeconds"))
	text := ""
	switch action {
	case "CreateQueue":
		text = "<CreateQueueResult><QueueUrl>http://q/" + r.PostForm.Get("QueueName") + "</QueueUrl></CreateQueueResult>"
	case "SendMessage":
		q.held = append(q.held, r.PostForm.Get("MessageBody"))
	case "SendMessageBatch":
		for i := 1; r.PostForm.Has(fmt.Sprintf("SendMessageBatchRequestEntry.%d.Id", i)); i++ {
			q.held = append(q.held, r.PostForm.Get(fmt.Sprintf("SendMessageBatchRequestEntry.%d.MessageBody", i)))
			text += "<SendMessageBatchResultEntry><Id>x</Id></SendMessageBatchResultEntry>"
		}
		text = "<SendMessageBatchResult>" + text + "</SendMessageBatchResult>"
	case "ReceiveMessage":
		for i, body := range q.held {
			var b strings.Builder
			_ = xml.EscapeText(&b, []byte(body))
			text += fmt.Sprintf("<Message><Body>%s</Body><ReceiptHandle>r%d</ReceiptHandle></Message>", b.String(), i)
		}
		text = "<ReceiveMessageResult>" + text + "</ReceiveMessageResult>"
	case "DeleteMessageBatch":
		// One fewer than asked for.
		text = "<DeleteMessageBatchResult></DeleteMessageBatchResult>"
		if len(q.held) > 1 {
			text = "<DeleteMessageBatchResult>" + strings.Repeat("<DeleteMessageBatchResultEntry/>", len(q.held)) + "</DeleteMessageBatchResult>"
		}
		q.held = nil
	default:
		w.WriteHeader(http.StatusBadRequest)
		text = "<Error><Code>Unknown</Code><Message>what</Message></Error>"
	}
	_, _ = fmt.Fprintf(w, "<%sResponse>%s</%sResponse>", action, text, action)
}

func TestQueryProtocol(t *testing.T) {
	fake := &queues{}
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	client := newQuery(server.URL, server.Client())
	ctx := context.Background()
	url, err := client.create(ctx, "bench0")
	if err != nil || url != "http://q/bench0" {
		t.Fatalf("%q, %v", url, err)
	}
	q := &queue{api: client, urls: []string{url}}
	sender, receiver := &sender{queue: q}, &receiver{api: client, url: url}
	if err := sender.Send(ctx, [][]byte{[]byte("a+b/<&>"), []byte("2")}, 0); err != nil {
		t.Fatal(err)
	}
	var got []string
	n, err := receiver.Receive(ctx, func(body []byte) { got = append(got, string(body)) })
	if err != nil || n != 2 || !slices.Equal(got, []string{"a+b/<&>", "2"}) {
		t.Fatalf("%d %q, %v", n, got, err)
	}
	if err := sender.Send(ctx, [][]byte{[]byte("one")}, 1500_000_000); err != nil {
		t.Fatal(err)
	}
	if last := fake.actions[len(fake.actions)-1]; last != "SendMessage2" {
		t.Errorf("a delay of 1.5 s was sent as %s", last)
	}
	// What was not deleted would come again.
	if _, err := receiver.Receive(ctx, func([]byte) {}); err == nil {
		t.Error("a delete that did nothing was taken for one that did")
	}
	if err := client.ready(ctx); err == nil || !strings.Contains(err.Error(), "Unknown") {
		t.Errorf("an error: %v", err)
	}
}
