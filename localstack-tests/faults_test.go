//go:build localstack

package localstack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// sequenced is a produce call of one message under a sequence; its body is larger than what stays beside the head.
func sequenced(producer string) (call object, body string) {
	body = strings.Repeat(producer+" ", 20_000/len(producer))
	return object{"messages": []object{{"body": body}}, "producer": object{"id": producer, "sequence": 1}}, body
}

// retried makes a call again, as a client does, until its one message is accepted. API Gateway's own answers to a
// function that died are worth a retry, too.
func (d *deployment) retried(t *testing.T, topic string, in object) (id string, calls int) {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(300 * time.Millisecond) {
		calls++
		a := d.call(t, "POST", "/v1/topics/"+topic+"/messages", in)
		var out struct {
			Results []struct {
				ID    string
				Error *struct {
					Code      string
					Retryable bool
				}
			}
			Error *struct {
				Code      string
				Retryable bool
			}
		}
		_ = json.Unmarshal(a.body, &out)
		switch {
		case a.status == http.StatusOK && len(out.Results) == 1 && out.Results[0].Error == nil:
			return out.Results[0].ID, calls
		case out.Error != nil && !out.Error.Retryable, len(out.Results) == 1 && out.Results[0].Error != nil && !out.Results[0].Error.Retryable:
			t.Fatalf("an answer that tells not to retry: %v", a)
		case a.status < 500 && a.status != http.StatusTooManyRequests && a.status != http.StatusOK:
			t.Fatalf("answer: %v", a)
		}
	}
	t.Fatal("not accepted within a minute")
	return "", 0
}

// once claims all there is: just the message, once.
func (d *deployment) once(t *testing.T, topic, id, body string) {
	t.Helper()
	got := d.claim(t, topic, object{"max_messages": 10, "wait": 2})
	if len(got) != 1 || got[0].ID != id || got[0].Body != body {
		t.Errorf("accepted %s, claimed %.300v", id, got)
	}
	d.ack(t, topic, got...)
}

// storeRefuses: for seconds the table throttles, or S3 says SlowDown; then the message is there, once.
func storeRefuses(t *testing.T, d *deployment) {
	p, _, restore := d.behind(t, "Produce")
	defer restore()
	for name, c := range map[string]struct {
		v     verdict
		table bool
	}{
		"throttled": {verdict{status: http.StatusBadRequest, body: throttled}, true},
		"slow-down": {verdict{status: http.StatusServiceUnavailable, body: slowDown}, false},
	} {
		t.Run(name, func(t *testing.T) {
			d.topic(t, name, object{}, object{})
			began, refused := time.Now(), 0
			p.set(func(_ int, r *http.Request) verdict {
				if ofTable(r) == c.table && time.Since(began) < 6*time.Second {
					refused++
					return c.v
				}
				return verdict{}
			})
			call, body := sequenced("p-" + name)
			id, calls := d.retried(t, name, call)
			p.set(nil)
			t.Logf("%d calls, %d requests refused", calls, refused)
			if refused == 0 {
				t.Error("no request went through the proxy")
			}
			d.once(t, name, id, body)
		})
	}
}

// killedInMidCall kills the function's process at each of its requests to a store, once before and once after the
// store did it. The client's retry under its sequence makes one message of it, and nothing that was acknowledged is
// lost.
func killedInMidCall(t *testing.T, d *deployment) {
	p, f, restore := d.behind(t, "Produce")
	defer restore()
	d.topic(t, "killed", object{}, object{"visibility_timeout": 30})
	stages := 0
	for _, done := range []bool{false, true} {
		for n := 1; n < 20; n++ {
			call, body := sequenced(fmt.Sprintf("p-%v-%d", done, n))
			held, release := make(chan struct{}), make(chan struct{})
			p.set(func(i int, _ *http.Request) verdict {
				if i == n {
					return verdict{held: held, release: release, done: done}
				}
				return verdict{}
			})
			first := d.start(t, "POST", "/v1/topics/killed/messages", call)
			reached := false
			select {
			case <-held:
				reached = true
			case a := <-first:
				if a.status != http.StatusOK {
					t.Fatalf("a call that nobody disturbed: %v", a)
				}
			}
			if reached {
				stages++
				if d.kill(t, f) == 0 {
					t.Fatal("the emulator runs the functions where this test cannot kill them")
				}
				close(release)
				if a := await(t, "an answer to the call whose function died", first); a.status < 500 {
					t.Errorf("request %d, done %v: %v", n, done, a)
				}
			}
			p.set(nil)
			id, _ := d.retried(t, "killed", call)
			d.once(t, "killed", id, body)
			if !reached {
				break
			}
		}
	}
	t.Logf("killed at %d stages", stages)
	if stages < 4 {
		t.Errorf("only %d stages of a call were seen", stages)
	}
}

// consumerKilled: a claim or an ack whose function dies leaves the message to be claimed again.
func consumerKilled(t *testing.T, d *deployment) {
	d.topic(t, "claim-killed", object{}, object{"visibility_timeout": 3})
	p, f, restore := d.behind(t, "Consume")
	defer restore()
	for n := 1; n <= 3; n++ {
		for _, how := range []string{"claims", "ack"} {
			sent := d.produce(t, "claim-killed", object{"body": "x"})
			in := object{}
			if how == "ack" {
				got := d.claim(t, "claim-killed", object{"wait": 5})
				if len(got) != 1 {
					t.Fatalf("claimed %v", got)
				}
				in = object{"receipts": []string{got[0].Receipt}}
			}
			held, release := make(chan struct{}), make(chan struct{})
			p.set(func(i int, _ *http.Request) verdict {
				if i == n {
					return verdict{held: held, release: release, done: true}
				}
				return verdict{}
			})
			call := d.start(t, "POST", "/v1/topics/claim-killed/subscriptions/s/"+how, in)
			acked := false
			select {
			case <-held:
				d.kill(t, f)
				close(release)
				if a := await(t, "an answer", call); a.status < 500 {
					t.Errorf("%s, request %d: %v", how, n, a)
				}
				acked = how == "ack" // may be
			case a := <-call: // it has fewer requests
				acked = how == "ack" && a.status == http.StatusOK
			}
			p.set(nil)
			var got []message
			eventually(t, 20*time.Second, "the message can be claimed again, or is acked", func() bool {
				got = d.claim(t, "claim-killed", object{"wait": 4})
				return len(got) > 0 || acked
			})
			if len(got) > 0 && got[0].ID != sent[0].ID {
				t.Errorf("sent %v, claimed %v", sent, got)
			}
			d.ack(t, "claim-killed", got...)
		}
	}
}

// wrongSettings: a function whose table is not there, or not its own, says so and to whom it can.
func wrongSettings(t *testing.T, d *deployment) {
	f := d.function(t, "Produce")
	defer d.with(t, f, map[string]string{"SPILLWAY_TABLE": "no-such-table"})()
	a := d.call(t, "POST", "/v1/topics/any/messages", object{"messages": []object{{"body": "x"}}})
	if a.status != http.StatusServiceUnavailable || a.code() != "unavailable" || !strings.Contains(string(a.body), `"retryable":true`) || a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a)
	}
	if strings.Contains(string(a.body), "no-such-table") {
		t.Errorf("the answer tells too much: %v", a)
	}
	eventually(t, 20*time.Second, "a line in the log that tells of the table", func() bool {
		for _, line := range d.logs(t, d.stack, "Produce") {
			if strings.Contains(line, "the table") && strings.Contains(line, `"status":503`) {
				return true
			}
		}
		// The emulator takes a function's lines along with its next call.
		d.call(t, "POST", "/v1/topics/any/messages", object{"messages": []object{{"body": "x"}}})
		return false
	})
}

// bodies near the bounds of Lambda (6 MB, what is not text a third more) and of API Gateway (10 MB): each is taken
// as a whole, or refused as a whole with 4xx. Whose bound it is differs between AWS and its emulators.
func bodies(t *testing.T, d *deployment) {
	d.topic(t, "bodies", object{"max_message_bytes": 8 << 20}, object{})
	for _, c := range []struct {
		size  int
		taken bool // must be
		kind  string
	}{
		{5_900_000, true, "application/json"},
		{6_300_000, false, "application/json"},
		{4_400_000, true, "application/json; charset=utf-8"},
		{9_900_000, false, "application/json"},
		{10_600_000, false, "application/json"},
	} {
		body := strings.Repeat("b", c.size)
		a := d.call(t, "POST", "/v1/topics/bodies/messages", `{"messages":[{"body":"`+body+`"}]}`, "Content-Type", c.kind)
		var out results
		_ = json.Unmarshal(a.body, &out)
		taken := a.status == http.StatusOK && len(out.Results) == 1 && out.Results[0].ID != ""
		if c.taken && !taken || !taken && a.status >= 500 {
			t.Errorf("%d bytes: %.300v", c.size, a)
		}
		t.Logf("%d bytes: %d, taken %v", c.size, a.status, taken)
		got := d.claim(t, "bodies", object{"max_messages": 10, "max_bytes": 16 << 20})
		if taken != (len(got) == 1) || len(got) == 1 && got[0].ID != out.Results[0].ID {
			t.Errorf("%d bytes: taken %v, claimed %.300v", c.size, taken, got)
		}
		d.ack(t, "bodies", got...)
	}
}

// destroyed: the stack goes, bucket and table stay, and a deployment on them finds all that there was.
func destroyed(t *testing.T, w *workshop, d *deployment) {
	small, large := d.produce(t, "shared", object{"body": "small"}), d.produce(t, "shared", object{"body": strings.Repeat("L", 50_000)})
	w.cdk(t, "destroy", d.stack, "--force", "-c", "code="+w.code(), "-c", "stack="+d.stack)
	if a := d.call(t, "GET", "/v1/topics", nil); a.status < 400 {
		t.Errorf("the API is still there: %v", a)
	}
	again := w.deploy(t, "SpillwayThree", "bucket="+d.BucketName, "table="+d.TableName)
	if again.TableName != d.TableName || again.BucketName != d.BucketName || again.api == d.api {
		t.Fatalf("deployed on %+v: %+v", d, again)
	}
	got := again.claim(t, "shared", object{"max_messages": 10, "wait": 5})
	if len(got) != 2 || got[0].ID != small[0].ID && got[1].ID != small[0].ID || got[0].ID != large[0].ID && got[1].ID != large[0].ID {
		t.Errorf("sent %v and %v, claimed %.300v", small, large, got)
	}
	again.ack(t, "shared", got...)
	again.produce(t, "shared", object{"body": "goes on"})
}
