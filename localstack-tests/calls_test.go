//go:build localstack

package localstack

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// refusedCalls never reach a function.
func refusedCalls(t *testing.T, d *deployment) {
	for _, c := range []struct{ name, method, path string }{
		{"no such path", "GET", "/nothing"},
		{"no such method", "POST", "/v1/topics"},
		{"the local server's metrics", "GET", "/metrics"},
		{"one part too many", "GET", "/v1/topics/a/b/c/d/e"},
	} {
		if a := d.call(t, c.method, c.path, nil); a.status != http.StatusNotFound || a.code() != "" {
			t.Errorf("%s: %v", c.name, a)
		}
	}
	unsigned := d.request(t, "GET", "/v1/topics", nil)
	a, err := d.send(t.Context(), "", unsigned, nil)
	if err != nil || a.status != http.StatusForbidden {
		t.Errorf("an unsigned call: %v, %v", a, err)
	}
}

// oddCalls reach a function, which answers each in the API's own words.
func oddCalls(t *testing.T, d *deployment) {
	d.topic(t, "odd", object{}, object{})
	const text = "Content-Type"
	for _, c := range []struct {
		name, method, path string
		body               any
		headers            []string
		status             int
		code               string
	}{
		{"no such topic", "GET", "/v1/topics/none", nil, nil, 404, "topic_not_found"},
		{"no such subscription", "POST", "/v1/topics/odd/subscriptions/none/claims", object{}, nil, 404, "subscription_not_found"},
		{"no JSON", "POST", "/v1/topics/odd/messages", "{", nil, 400, "invalid_argument"},
		{"no body", "POST", "/v1/topics/odd/messages", nil, nil, 400, "invalid_argument"},
		{"unknown field", "POST", "/v1/topics/odd/messages", `{"messages":[],"more":1}`, nil, 400, "invalid_argument"},
		{"another snowman", "GET", "/v1/topics/%E2%98%83", nil, nil, 400, "invalid_argument"},
		{"a plus", "GET", "/v1/topics/a+b", nil, nil, 400, "invalid_argument"},
		{"a blank", "GET", "/v1/topics/a%20b", nil, nil, 400, "invalid_argument"},
		{"an odd query", "GET", "/v1/topics?limit=many", nil, nil, 400, "invalid_argument"},
		{"not a batch", "POST", "/v1/topics/odd/messages", "\x00\xff\xfe", []string{text, "application/vnd.spillway.batch"}, 400, "invalid_argument"},
		{"other config", "PUT", "/v1/topics/odd", object{"max_message_bytes": 7}, nil, 409, "topic_exists"},
	} {
		a := d.call(t, c.method, c.path, c.body, c.headers...)
		if a.status != c.status || a.code() != c.code || a.header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v, request id %q", c.name, a, a.header.Get("X-Request-Id"))
		}
	}
	// A text type of another name goes to the function in base 64.
	a := d.call(t, "POST", "/v1/topics/odd/messages", `{"messages":[{"body":"x"}]}`, text, "application/octet-stream")
	if a.status != 200 && a.status != 400 && a.status != 415 {
		t.Errorf("JSON as octets: %v", a)
	}
}

// document: the API says what it is.
func document(t *testing.T, d *deployment) {
	a := d.call(t, "GET", "/v1/openapi.yaml", nil)
	if a.status != 200 || !strings.HasPrefix(string(a.body), "openapi: 3.1") {
		t.Errorf("%.300v", a)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := d.call(t, "GET", path, nil); a.status != 200 {
			t.Errorf("%s: %v", path, a)
		}
	}
}

// schedules: leader and compactor are run by nobody but their schedules, and the leader promotes what no claim
// has. Their metrics tell.
func schedules(t *testing.T, d *deployment) {
	d.topic(t, "nobody", object{"default_delay": 1}, object{})
	d.produce(t, "nobody", object{"body": "promoted by the schedule"})
	const patience = 150 * time.Second
	eventually(t, patience, "a delayed message is promoted", func() bool {
		var status struct {
			Messages struct{ Ready, Delayed int }
		}
		d.call(t, "GET", "/v1/topics/nobody", nil).into(t, &status)
		return status.Messages.Ready == 1 && status.Messages.Delayed == 0
	})
	for _, function := range []string{"Leader", "Compactor"} {
		eventually(t, patience, "a run of "+function, func() bool {
			runs := d.runs(t, d.stack, function)
			for _, r := range runs {
				if r.Faults != 0 || r.Table != d.TableName {
					t.Errorf("%s: %+v", function, r)
				}
			}
			return len(runs) > 0
		})
	}
	promoted := 0
	for _, r := range d.runs(t, d.stack, "Leader") {
		promoted += r.Promoted
		if r.OldestMessageAge == nil {
			t.Errorf("the leader does not tell how long messages wait: %+v", r)
		}
	}
	if promoted == 0 {
		t.Error("the leader's metrics tell of no promotion")
	}
	// The promoted message waits for a subscription that nobody claims from.
	eventually(t, patience, "the leader tells that a message waits", func() bool {
		return slices.ContainsFunc(d.runs(t, d.stack, "Leader"), func(r run) bool { return r.OldestMessageAge != nil && *r.OldestMessageAge > 0 })
	})
}

// sideBySide: a second deployment shares nothing with the first.
func sideBySide(t *testing.T, w *workshop, one *deployment) *deployment {
	two := w.deploy(t, "SpillwayTwo")
	if two.TableName == one.TableName || two.BucketName == one.BucketName || two.api == one.api {
		t.Fatalf("shared: %+v, %+v", one, two)
	}
	one.topic(t, "shared", object{}, object{})
	one.produce(t, "shared", object{"body": "one's"})
	if a := two.call(t, "GET", "/v1/topics/shared", nil); a.status != http.StatusNotFound {
		t.Errorf("the second deployment has the first one's topic: %v", a)
	}
	two.topic(t, "shared", object{}, object{})
	two.produce(t, "shared", object{"body": "two's"})
	for d, want := range map[*deployment]string{one: "one's", two: "two's"} {
		got := d.claim(t, "shared", object{"max_messages": 10, "wait": 5})
		if len(got) != 1 || got[0].Body != want {
			t.Errorf("%s claimed %+v", d.stack, got)
			continue
		}
		// Even a receipt is good for its own deployment only.
		if d == one {
			if r := two.settle(t, "shared", "ack", object{"receipts": []string{got[0].Receipt}}); r[0].OK {
				t.Error("the second deployment took the first one's receipt")
			}
		}
		d.ack(t, "shared", got...)
	}
	return two
}

// redeployed: all that was there before is there after a change of every function.
func redeployed(t *testing.T, w *workshop, one *deployment) {
	one.topic(t, "kept", object{"default_delay": 0}, object{"visibility_timeout": 600})
	one.topic(t, "kept-later", object{"default_delay": 600}, object{})
	one.produce(t, "kept", object{"body": "a"}, object{"body": "b"}, object{"body": "c"})
	later := one.produce(t, "kept-later", object{"body": "later"})
	before := one.claim(t, "kept", object{"max_messages": 1})
	if len(before) != 1 {
		t.Fatalf("claimed %+v", before)
	}
	var topics struct{ Topics []json.RawMessage }
	one.call(t, "GET", "/v1/topics", nil).into(t, &topics)

	two := w.deploy(t, one.stack, "logLevel=debug")
	if two.api != one.api || two.TableName != one.TableName || two.BucketName != one.BucketName {
		t.Fatalf("moved: from %+v to %+v", one, two)
	}
	var after struct{ Topics []json.RawMessage }
	two.call(t, "GET", "/v1/topics", nil).into(t, &after)
	if len(topics.Topics) == 0 || len(after.Topics) != len(topics.Topics) {
		t.Errorf("%d topics, %d before", len(after.Topics), len(topics.Topics))
	}
	two.ack(t, "kept", before...)
	got := two.claim(t, "kept", object{"max_messages": 10, "wait": 5})
	var bodies []string
	for _, m := range append(got, before...) {
		bodies = append(bodies, m.Body)
	}
	if slices.Sort(bodies); !slices.Equal(bodies, []string{"a", "b", "c"}) {
		t.Errorf("claimed before and after: %v", bodies)
	}
	two.ack(t, "kept", got...)
	if a := two.call(t, "GET", "/v1/topics/kept-later/delayed/"+later[0].DelayedID, nil); a.status != http.StatusOK {
		t.Errorf("the delayed message: %v", a)
	}
	// Debug lines show that the functions are the new ones.
	eventually(t, 20*time.Second, "a line of level DEBUG", func() bool {
		for _, line := range two.logs(t, two.stack, "Produce") {
			if strings.Contains(line, `"level":"DEBUG"`) {
				return true
			}
		}
		two.produce(t, "kept", object{"body": "for the log"})
		return false
	})
}
