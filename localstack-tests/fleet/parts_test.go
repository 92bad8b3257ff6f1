//go:build localstack

package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/tests/load"
)

// direct is the way to one process.
type direct struct {
	*process
	client *http.Client
}

func (d direct) URL() string { return d.url }

func (d direct) Do(req *http.Request) ([]byte, int, error) { return load.Send(d.client, req) }

func call(t *testing.T, to load.Target, method, path string, in, out any) {
	t.Helper()
	if err := load.Call(t.Context(), to, load.Request{Method: method, Path: path, In: in}, out); err != nil {
		t.Fatal(err)
	}
}

func topic(t *testing.T, to load.Target, name string) {
	t.Helper()
	call(t, to, "PUT", "/v1/topics/"+name, wire.TopicConfig{}, nil)
	call(t, to, "PUT", "/v1/topics/"+name+"/subscriptions/s", wire.SubscriptionConfig{VisibilityTimeout: wire.Of(visibility.Seconds())}, nil)
}

func produce(t *testing.T, to load.Target, topic, body string) {
	t.Helper()
	var out wire.ProduceAnswer
	call(t, to, "POST", "/v1/topics/"+topic+"/messages", wire.ProduceRequest{Messages: []wire.MessageIn{{Body: wire.Text(body)}}}, &out)
	if len(out.Results) != 1 || out.Results[0].Error != nil {
		t.Fatalf("produce: %+v", out)
	}
}

func claim(t *testing.T, to load.Target, topic string, req wire.ClaimRequest) []wire.Message {
	t.Helper()
	var got wire.MessageList
	call(t, to, "POST", "/v1/topics/"+topic+"/subscriptions/s/claims", req, &got)
	return got.Messages
}

// foreignMessage: a long poll at one process finds what comes through another, by looking.
func foreignMessage(t *testing.T, one, other *process) {
	client := newClient(t)
	topic(t, direct{one, client}, "foreign")
	got := make(chan []wire.Message, 1)
	began := time.Now()
	go func() {
		var list wire.MessageList
		err := load.Call(t.Context(), direct{one, client}, load.Request{
			Method: "POST", Path: "/v1/topics/foreign/subscriptions/s/claims", In: wire.ClaimRequest{Wait: wire.Of(20.0)},
		}, &list)
		if err != nil {
			t.Error(err)
		}
		got <- list.Messages
	}()
	time.Sleep(2 * time.Second)
	produce(t, direct{other, client}, "foreign", "x")
	sent := time.Now()
	if messages := <-got; len(messages) != 1 || time.Since(sent) > longestPause+slack {
		t.Errorf("%d messages %v after one was sent", len(messages), time.Since(sent))
	}
	t.Logf("a poll of %v heard of a message %v after it came through another process", time.Since(began), time.Since(sent))
}

// refused: a process whose table or bucket is not what it should be does not start, and says which and why.
func refused(t *testing.T, w *works) {
	other, half := newForeignTables(t)
	for _, c := range []struct {
		name, table, bucket string
		environment         []string
		code                int
		says                string
	}{
		{"no table", "missing-table", w.bucket, os.Environ(), 3, `table "missing-table": there is none of that name`},
		{"no bucket", w.table, "missing-bucket", os.Environ(), 3, `bucket "missing-bucket": there is none of that name`},
		{"other keys", other, w.bucket, os.Environ(), 1, "its keys must be the strings pk and sk"},
		{"no sort key", half, w.bucket, os.Environ(), 1, "its keys must be the strings pk and sk"},
		{"no region", w.table, w.bucket, append(os.Environ(), "AWS_REGION=", "AWS_DEFAULT_REGION="), 2, "region"},
		{"nobody there", w.table, w.bucket, append(os.Environ(), "AWS_ENDPOINT_URL=http://127.0.0.1:1"), 5, "cannot be reached"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, w.binary, "serve", "--aws", "--table", c.table, "--bucket", c.bucket, "--listen", "127.0.0.1:0")
		cmd.Env = c.environment
		out, err := cmd.CombinedOutput()
		cancel()
		if err == nil || cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(out), c.says) {
			t.Errorf("%s: exit code %d, want %d, and %q in: %s", c.name, cmd.ProcessState.ExitCode(), c.code, c.says, out)
		}
	}
}

// presigned: a claim by reference gives a URL of the object store, of no process.
func presigned(t *testing.T, b *balancer) {
	topic(t, b, "presigned")
	body := strings.Repeat("spillway ", 5000)
	produce(t, b, "presigned", body)
	got := claim(t, b, "presigned", wire.ClaimRequest{Wait: wire.Of(5.0), Deliver: wire.DeliverReference})
	if len(got) != 1 || got[0].Reference == nil {
		t.Fatalf("claimed %+v", got)
	}
	ref := got[0].Reference
	for _, p := range b.processes() {
		if strings.HasPrefix(ref.URL, p.url) {
			t.Fatalf("the URL leads to %s: %s", p.name, ref.URL)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, ref.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range ref.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", ref.Offset, ref.Offset+ref.Length-1))
	data, status, err := load.Send(newClient(t), req)
	if err != nil || status != http.StatusPartialContent && status != http.StatusOK {
		t.Fatalf("get: %d %.300s, %v", status, data, err)
	}
	if ref.Format == wire.FormatPayload && !bytes.Equal(data, []byte(body)) || len(data) == 0 {
		t.Errorf("%d bytes came, of format %s", len(data), ref.Format)
	}
}

// orphans are messages that were claimed at a process, by somebody who forgot them.
type orphans struct {
	topic   string
	claimed []wire.Message
	at      time.Time
}

func claimAndForget(t *testing.T, victim *process) orphans {
	t.Helper()
	o := orphans{topic: "orphans." + strings.ReplaceAll(victim.name, " ", ".")}
	to := direct{victim, newClient(t)}
	topic(t, to, o.topic)
	for i := range 3 {
		produce(t, to, o.topic, fmt.Sprint(i))
	}
	o.at = time.Now()
	o.claimed = claim(t, to, o.topic, wire.ClaimRequest{MaxMessages: wire.Of(10), Wait: wire.Of(2.0)})
	if len(o.claimed) != 3 {
		t.Fatalf("%d of 3 claimed", len(o.claimed))
	}
	return o
}

// comeBack: another process hands them out when their claims have expired, not before and not much later.
func (o orphans) comeBack(t *testing.T, from load.Target, b *balancer) {
	back := make(map[string]bool)
	var first, last time.Duration
	for time.Since(o.at) < visibility+longestPause+patience && len(back) < len(o.claimed) {
		for _, m := range claim(t, from, o.topic, wire.ClaimRequest{MaxMessages: wire.Of(10), Wait: wire.Of(10.0)}) {
			if last = time.Since(o.at); first == 0 {
				first = last
			}
			if m.Attempt < 2 {
				t.Errorf("%s comes back as attempt %d", m.ID, m.Attempt)
			}
			back[m.ID] = true
			var done wire.ReceiptsAnswer
			call(t, from, "POST", "/v1/topics/"+o.topic+"/subscriptions/s/ack", wire.ReceiptsRequest{Receipts: []string{m.Receipt}}, &done)
		}
	}
	// Of an expired claim ever smaller runs come back, here by one call for each message.
	if bound := visibility + longestPause + slack + 3*b.slowestCall(); last > bound {
		t.Errorf("the last came back after %v, later than %v", last, bound)
	}
	t.Logf("claims that hold %v came back after %v to %v", visibility, first, last)
	if len(back) != len(o.claimed) || first < visibility {
		t.Errorf("%d of %d came back, the first after %v", len(back), len(o.claimed), first)
	}
}
