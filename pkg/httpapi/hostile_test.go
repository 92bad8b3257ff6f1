package httpapi_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// takesBody says which routes read a JSON body, and gives one that is good.
func takesBody() map[string]string {
	receipt := queue.Receipt{Segment: segmentA, Claim: queue.ClaimID{1}, Lo: 1, Hi: 2}.String()
	const sub = "/v1/topics/{topic}/subscriptions/{subscription}"
	return map[string]string{
		"PUT /v1/topics/{topic}":                           `{"max_delay":5}`,
		"PATCH /v1/topics/{topic}":                         `{"max_delay":5}`,
		"POST /v1/topics/{topic}/messages":                 `{"messages":[{"body":"x"}]}`,
		"POST /v1/topics/{topic}/uploads":                  `{"objects":[{"size":1}]}`,
		"POST /v1/topics/{topic}/references":               `{"references":[{"object":"uploads/a","format":"batch"}]}`,
		"PATCH /v1/topics/{topic}/delayed/{id}":            `{"delay":5}`,
		"POST /v1/topics/{topic}/segments/{segment}/split": `{"into":2}`,
		"POST /v1/topics/{topic}/segments/merge":           `{"segments":["` + string(segmentA) + `","` + string(segmentB) + `"]}`,
		"PUT " + sub:                                       `{"visibility_timeout":5}`,
		"PATCH " + sub:                                     `{"visibility_timeout":5}`,
		"POST " + sub + "/claims":                          `{"max_messages":5}`,
		"POST " + sub + "/ack":                             `{"receipts":["` + receipt + `"]}`,
		"POST " + sub + "/release":                         `{"receipts":["` + receipt + `"]}`,
		"POST " + sub + "/extend":                          `{"receipts":["` + receipt + `"],"visibility_timeout":5}`,
		"POST " + sub + "/seek":                            `{"to":"latest"}`,
	}
}

// TestHostileBodies gives every route that reads a body what no client should send.
func TestHostileBodies(t *testing.T) {
	bodies := takesBody()
	for _, r := range httpapi.Routes() {
		good, ok := bodies[r.Method+" "+r.Pattern]
		if !ok {
			continue
		}
		target := fill(r.Pattern)
		delete(bodies, r.Method+" "+r.Pattern)
		if got := newAPI().do(t, r.Method, target, good); got.StatusCode >= 300 {
			t.Errorf("%s %s: the good body: %s", r.Method, target, got.body)
		}
		name := strings.SplitN(good, `"`, 3)[1]
		for what, c := range map[string]struct {
			body, contentType string
			code              queue.Code
			field             string
		}{
			"unknown field": {good[:len(good)-1] + `,"nope":1}`, "", queue.CodeInvalidArgument, "nope"},
			"other case":    {strings.Replace(good, name, strings.ToUpper(name), 1), "", queue.CodeInvalidArgument, strings.ToUpper(name)},
			"twice":         {`{` + good[1:len(good)-1] + `,` + good[1:], "", queue.CodeInvalidArgument, name},
			"trailing":      {good + `x`, "", queue.CodeInvalidArgument, "request"},
			"two values":    {good + good, "", queue.CodeInvalidArgument, "request"},
			"cut off":       {good[:len(good)-1], "", queue.CodeInvalidArgument, "request"},
			"no JSON":       {`hello`, "", queue.CodeInvalidArgument, "request"},
			"array":         {`[` + good + `]`, "", queue.CodeInvalidArgument, "request"},
			"string":        {`"x"`, "", queue.CodeInvalidArgument, "request"},
			"other type":    {`{"` + name + `":false}`, "", queue.CodeInvalidArgument, ""},
			"deep":          {`{"` + name + `":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `}`, "", queue.CodeInvalidArgument, ""},
			"not UTF-8":     {"{\"\xff\":1}", "", queue.CodeInvalidArgument, "request"},
			"NUL":           {"\x00", "", queue.CodeInvalidArgument, "request"},
			"form":          {good, "application/x-www-form-urlencoded", queue.CodeUnsupportedMediaType, "Content-Type"},
			"no media type": {good, "/;;", queue.CodeUnsupportedMediaType, "Content-Type"},
			"charset":       {good, "application/json; charset=latin1", queue.CodeUnsupportedMediaType, "Content-Type"},
			"too large":     {good + strings.Repeat(" ", queue.MaxRequestBytes), "", queue.CodeTooLarge, "request"},
		} {
			contentType := c.contentType
			if contentType == "" {
				contentType = wire.MediaTypeJSON
			}
			a := newAPI()
			got := a.do(t, r.Method, target, c.body, "Content-Type", contentType)
			e := got.fault()
			if e.Code != c.code || c.field != "" && (e.Details == nil || e.Details.Field != c.field) {
				t.Errorf("%s %s: %s: %d %s", r.Method, target, what, got.StatusCode, got.body)
			}
		}
		if got := newAPI().do(t, r.Method, target, good, "Content-Encoding", "gzip"); got.StatusCode != 415 {
			t.Errorf("%s %s: gzip: %d", r.Method, target, got.StatusCode)
		}
	}
	if len(bodies) > 0 {
		t.Errorf("no such route: %v", bodies)
	}
}

// TestHostilePaths puts names that are none into every place of every path.
func TestHostilePaths(t *testing.T) {
	bodies := takesBody()
	for _, r := range httpapi.Routes() {
		for _, place := range []string{"{topic}", "{subscription}", "{segment}", "{id}"} {
			if !strings.Contains(r.Pattern, place) {
				continue
			}
			for _, name := range []string{
				"%20", "a%2Fb", "%2e%2e", ".", "a..b", ".a", "a.", "%00", "%ff", "%C3%A9", "a%3Fb", "a+b", "a%0Ab",
				strings.Repeat("a", 201), "$", "~", "%E2%80%AE", "-1", "a:b", "<script>",
			} {
				pattern := strings.Replace(r.Pattern, place, name, 1)
				a := newAPI()
				req := httptest.NewRequest(r.Method, "http://queue.test/", strings.NewReader(bodies[r.Method+" "+r.Pattern]))
				got := a.sendTo(t, req, fill(pattern))
				if name == "-1" && (place == "{topic}" || place == "{subscription}") {
					continue // a fine name
				}
				if got.StatusCode != 400 && got.StatusCode != 404 {
					t.Errorf("%s %s: %d %s", r.Method, pattern, got.StatusCode, got.body)
				}
			}
		}
	}
}

func TestHostileQueries(t *testing.T) {
	segment := string(segmentA)
	for target, field := range map[string]string{
		"/v1/topics?limit=0":                                         "limit",
		"/v1/topics?limit=1001":                                      "limit",
		"/v1/topics?limit=-1":                                        "limit",
		"/v1/topics?limit=+1":                                        "limit",
		"/v1/topics?limit=01":                                        "limit",
		"/v1/topics?limit=1e2":                                       "limit",
		"/v1/topics?limit=99999999999999999999999":                   "limit",
		"/v1/topics?limit=":                                          "limit",
		"/v1/topics?limit=1&limit=2":                                 "limit",
		"/v1/topics?nope=1":                                          "nope",
		"/v1/topics?Limit=1":                                         "Limit",
		"/v1/topics?cursor=%21":                                      "cursor",
		"/v1/topics?cursor=":                                         "cursor",
		"/v1/topics?cursor=Mg":                                       "cursor",
		"/v1/topics?a=%zz":                                           "query",
		"/v1/topics?a;b":                                             "query",
		"/v1/topics?prefix=%ff":                                      "prefix",
		"/v1/topics?%ff=1":                                           "query",
		"/v1/topics?" + strings.Repeat("x", 999) + "=1":              "query",
		"/v1/topics/orders?x=1":                                      "x",
		"/v1/topics/orders/segments?limit=0":                         "limit",
		"/v1/topics/orders/segments?cursor=AA":                       "cursor",
		"/v1/topics/orders/segments?state=":                          "state",
		"/v1/topics/orders/segments?state=Open":                      "state",
		"/v1/events?topic=":                                          "topic",
		"/v1/events?topic=a..b":                                      "topic",
		"/v1/events?limit=1001":                                      "limit",
		"/v1/events?cursor=x":                                        "cursor",
		"/v1/events?prefix=a":                                        "prefix",
		"/v1/topics/orders/subscriptions?limit=x":                    "limit",
		"/v1/topics/orders/delayed?limit=1001":                       "limit",
		"/v1/topics/orders/delayed/" + delayedID().String() + "?x=1": "x",
		"/v1/topics/orders/messages?offset=1":                        "segment",
		"/v1/topics/orders/messages?segment=x":                       "segment",
		"/v1/topics/orders/messages?segment=":                        "segment",
		"/v1/topics/orders/messages?offset=-1&segment=" + segment:    "offset",
		"/v1/topics/orders/messages?offset=9007199254740992&segment=" + segment:            "offset",
		"/v1/topics/orders/messages?offset=1&from=2026-01-01T00:00:00Z&segment=" + segment: "from",
		"/v1/topics/orders/messages?from=yesterday":                                        "from",
		"/v1/topics/orders/messages?from=1969-01-01T00:00:00Z":                             "from",
		"/v1/topics/orders/messages?include_delayed=yes":                                   "include_delayed",
		"/v1/topics/orders/messages?include_delayed=":                                      "include_delayed",
		"/v1/topics/orders/messages?include_delayed=true&segment=" + segment:               "include_delayed",
		"/v1/topics/orders/messages?cursor=MWRlbGF5ZWQ6":                                   "cursor",
		"/v1/topics/orders/segments/" + segment + "/records?wait=21":                       "wait",
		"/v1/topics/orders/segments/" + segment + "/records?wait=-1":                       "wait",
		"/v1/topics/orders/segments/" + segment + "/records?wait=NaN":                      "wait",
		"/v1/topics/orders/segments/" + segment + "/records?wait=Inf":                      "wait",
		"/v1/topics/orders/segments/" + segment + "/records?wait=1e99":                     "wait",
		"/v1/topics/orders/segments/" + segment + "/records?wait=0x1p-2":                   "wait",
		"/v1/topics/orders/segments/" + segment + "/records?wait=1_0":                      "wait",
		"/v1/topics/orders/segments/" + segment + "/records?wait=":                         "wait",
		"/v1/topics/orders/segments/" + segment + "/records?offset=x":                      "offset",
	} {
		got := newAPI().do(t, "GET", target, "")
		if e := got.fault(); got.StatusCode != 400 || e.Details == nil || e.Details.Field != field {
			t.Errorf("%s: %d %s", target, got.StatusCode, got.body)
		}
	}
}

// TestHostileFields breaks each rule of each call once. The answer names the field and, where there is
// one, the limit.
func TestHostileFields(t *testing.T) {
	sub, segment := "/v1/topics/orders/subscriptions/billing", "/v1/topics/orders/segments/"+string(segmentA)
	many := func(entry string, n int) string { return strings.TrimSuffix(strings.Repeat(entry+",", n), ",") }
	for _, c := range []struct {
		call, body, field string
		limit             any
	}{
		{"PUT /v1/topics/orders", `{"default_delay":-1}`, "default_delay", 0.0},
		{"PUT /v1/topics/orders", `{"default_delay":1e999}`, "default_delay", queue.MaxMaxDelay.Seconds()},
		{"PUT /v1/topics/orders", `{"max_delay":0}`, "max_delay", 0.001},
		{"PUT /v1/topics/orders", `{"max_delay":1e300}`, "max_delay", queue.MaxMaxDelay.Seconds()},
		{"PUT /v1/topics/orders", `{"default_ttl":-0.001}`, "default_ttl", 0.0},
		{"PUT /v1/topics/orders", `{"max_message_bytes":0}`, "max_message_bytes", 1.0},
		{"PUT /v1/topics/orders", `{"max_message_bytes":99999999999999999999}`, "max_message_bytes", float64(queue.MaxInlineMessageBytes)},
		{"PUT /v1/topics/orders", `{"scaling":{"min_segments":0}}`, "scaling.min_segments", 1.0},
		{"PUT /v1/topics/orders", `{"scaling":{"min_segments":5001}}`, "scaling.min_segments", float64(queue.MaxSegments)},
		{"PATCH /v1/topics/orders", `{"scaling":{"min_segments":0}}`, "scaling.min_segments", 1.0},
		{"PUT /v1/topics/orders", `{"scaling":{"max_segments":1.5}}`, "scaling.max_segments", nil},
		{"PUT /v1/topics/orders", `{"scaling":{"target_messages_per_second":"5"}}`, "scaling.target_messages_per_second", nil},
		{"PUT /v1/topics/orders", `{"scaling":{"target":5}}`, "scaling.target", nil},
		{"POST " + segment + "/split", `{"into":0}`, "into", 2.0},
		{"POST " + segment + "/split", `{"into":-1}`, "into", 2.0},
		{"POST " + segment + "/split", `{"into":17}`, "into", float64(queue.MaxSplit)},
		{"POST " + segment + "/split", `{"at":[65536]}`, "at[0]", 65535.0},
		{"POST " + segment + "/split", `{"at":[1,-1]}`, "at[1]", 0.0},
		{"POST " + segment + "/split", `{"at":[1.5]}`, "at[0]", nil},
		{"POST " + segment + "/split", `{"dry_run":1}`, "dry_run", nil},
		{"POST /v1/topics/orders/segments/merge", `{}`, "segments", 2.0},
		{"POST /v1/topics/orders/segments/merge", `{"segments":["` + string(segmentA) + `"]}`, "segments", 2.0},
		{"POST /v1/topics/orders/segments/merge", `{"segments":[` + many(`""`, 17) + `]}`, "segments", float64(queue.MaxSplit)},
		{"POST /v1/topics/orders/segments/merge", `{"segments":["` + string(segmentA) + `","x"]}`, "segments[1]", nil},
		{"PUT /v1/topics/orders", `{"attributes":{"a":null}}`, "attributes.a", nil},
		{"PUT " + sub, `{"visibility_timeout":0.5}`, "visibility_timeout", 1.0},
		{"PUT " + sub, `{"ordering":"random"}`, "ordering", nil},
		{"PUT " + sub, `{"ordering":""}`, "ordering", nil},
		{"PATCH " + sub, `{"ordering":"key"}`, "ordering", nil},
		{"PATCH " + sub, `{"ordering":"none"}`, "ordering", nil},
		{"PUT " + sub, `{"max_in_flight":0}`, "max_in_flight", 1.0},
		{"PATCH " + sub, `{"max_in_flight":100001}`, "max_in_flight", float64(queue.MaxMaxInFlight)},
		{"PUT " + sub, `{"backoff":[` + many("1", 17) + `]}`, "backoff", float64(queue.MaxBackoffSteps)},
		{"PUT " + sub, `{"backoff":[1,-1]}`, "backoff[1]", 0.0},
		{"PUT " + sub, `{"start":"soon"}`, "start", nil},
		{"PUT " + sub, `{"start":{"x":1}}`, "start", nil},
		{"PUT " + sub, `{"start":{"` + string(segmentA) + `":-1}}`, "start", nil},
		{"PUT " + sub, `{"start":{"` + string(segmentA) + `":1,"` + string(segmentA) + `":2}}`, "start." + string(segmentA), nil},
		{"PATCH " + sub, `{"start":"latest"}`, "start", nil},
		{"POST " + sub + "/seek", `{}`, "to", nil},
		{"POST " + sub + "/seek", `{"to":5}`, "to", nil},
		{"POST " + sub + "/seek", `{"to":{"` + string(segmentA) + `":null}}`, "to", nil},
		{"POST " + sub + "/claims", `{"max_messages":0}`, "max_messages", 1.0},
		{"POST " + sub + "/claims", `{"max_messages":10001}`, "max_messages", float64(queue.MaxClaimMessages)},
		{"POST " + sub + "/claims", `{"max_bytes":0}`, "max_bytes", 1.0},
		{"POST " + sub + "/claims", `{"max_messages":-99999999999999999999}`, "max_messages", 1.0},
		{"POST " + sub + "/claims", `{"max_messages":1.5}`, "max_messages", nil},
		{"POST " + sub + "/claims", `{"max_bytes":33554433}`, "max_bytes", float64(queue.MaxClaimBytes)},
		{"POST " + sub + "/claims", `{"wait":20.001}`, "wait", 20.0},
		{"POST " + sub + "/claims", `{"wait":-1}`, "wait", 0.0},
		{"POST " + sub + "/claims", `{"wait":NaN}`, "wait", nil},
		{"POST " + sub + "/claims", `{"visibility_timeout":43201}`, "visibility_timeout", 43200.0},
		{"POST " + sub + "/claims", `{"deliver":"pigeon"}`, "deliver", nil},
		{"POST " + sub + "/ack", `{}`, "receipts", 1.0},
		{"POST " + sub + "/ack", `{"receipts":[` + many(`""`, 10_001) + `]}`, "receipts", 10_000.0},
		{"POST " + sub + "/release", `{"receipts":["x"],"delay":43201}`, "delay", 43200.0},
		{"POST " + sub + "/release", `{"receipts":["x"],"reason":"` + strings.Repeat("x", 257) + `"}`, "reason", 256.0},
		{"POST " + sub + "/release", `{"receipts":["x"],"delay":1,"dead_letter":true}`, "delay", nil},
		{"POST " + sub + "/extend", `{"receipts":["x"]}`, "visibility_timeout", nil},
		{"POST " + sub + "/extend", `{"receipts":["x"],"visibility_timeout":0}`, "visibility_timeout", 1.0},
		{"POST /v1/topics/orders/messages", `{}`, "messages", 1.0},
		{"POST /v1/topics/orders/messages", `{"messages":[` + many(`{}`, 10_001) + `]}`, "messages", 10_000.0},
		{"POST /v1/topics/orders/messages", `{"messages":[{},null]}`, "messages[1]", nil},
		{"POST /v1/topics/orders/messages", `{"messages":[{},{"x":1}]}`, "messages[1].x", nil},
		{"POST /v1/topics/orders/messages", `{"messages":[{"headers":{"a":1}}]}`, "messages[0].headers.a", nil},
		{"POST /v1/topics/orders/messages", `{"messages":[{"body":"\ud800"}]}`, "request", nil},
		{"POST /v1/topics/orders/messages", "{\"messages\":[{\"body\":\"\xff\"}]}", "messages[0].body", nil},
		{"POST /v1/topics/orders/messages", `{"messages":[{}],"producer":{}}`, "producer.id", nil},
		{"POST /v1/topics/orders/messages", `{"messages":[{}],"producer":{"id":"p"}}`, "producer.sequence", 1.0},
		{"POST /v1/topics/orders/messages", `{"messages":[{}],"producer":{"id":"p","sequence":0}}`, "producer.sequence", 1.0},
		{"POST /v1/topics/orders/messages", `{"messages":[{}],"producer":{"id":"p","sequence":9007199254740992}}`, "producer.sequence", float64(queue.MaxOffset)},
		{"POST /v1/topics/orders/messages", `{"messages":[{}],"producer":{"id":"p","sequence":-1}}`, "producer.sequence", 0.0},
		{"POST /v1/topics/orders/messages", `{"messages":[{}],"producer":{"id":"p","sequence":1e3}}`, "producer.sequence", nil},
		{"POST /v1/topics/orders/messages", `{"messages":[{}],"producer":{"id":"` + strings.Repeat("p", 129) + `","sequence":1}}`, "producer.id", 128.0},
		{"POST /v1/topics/orders/uploads", `{"objects":[` + many(`{}`, 101) + `]}`, "objects", 100.0},
		{"POST /v1/topics/orders/references", `{"references":[]}`, "references", 1.0},
		{"PATCH /v1/topics/orders/delayed/" + delayedID().String(), `{}`, "request", nil},
		{"PATCH /v1/topics/orders/delayed/" + delayedID().String(), `{"body":"a","body_base64":"YQ=="}`, "body_base64", nil},
		{"PATCH /v1/topics/orders/delayed/" + delayedID().String(), `{"delay":-1}`, "delay", 0.0},
		{"PATCH /v1/topics/orders/delayed/" + delayedID().String(), `{"headers":{"":"x"}}`, "headers", nil},
	} {
		method, target, _ := strings.Cut(c.call, " ")
		got := newAPI().do(t, method, target, c.body)
		e := got.fault()
		if got.StatusCode != 400 || e.Details == nil || e.Details.Field != c.field || fmt.Sprint(e.Details.Limit) != fmt.Sprint(c.limit) {
			t.Errorf("%s %.80s: %d %s", c.call, c.body, got.StatusCode, got.body)
		}
	}
}

// TestFeaturesThatAreNotThere are refused by name, so that nobody believes in them.
func TestFeaturesThatAreNotThere(t *testing.T) {
	for body, field := range map[string]string{
		`{"retention":{"age":5}}`:         "retention",
		`{"retention":{}}`:                "retention",
		`{"dedup_window":60}`:             "dedup_window",
		`{"compaction":"latest_per_key"}`: "compaction",
	} {
		got := newAPI().do(t, "PUT", "/v1/topics/orders", body)
		if e := got.fault(); e.Code != queue.CodeInvalidArgument || e.Details.Field != field || !strings.Contains(e.Message, "not available in this version") {
			t.Errorf("%s: %s", body, got.body)
		}
	}
}

// TestHostileBatchHeaders: errors name the header, not the JSON field that a batch call does not have.
func TestHostileBatchHeaders(t *testing.T) {
	const id, sequence, key = "Spillway-Producer-Id", "Spillway-Producer-Sequence", "Idempotency-Key"
	for _, c := range []struct {
		field   string
		limit   any
		headers []string
	}{
		{sequence, nil, []string{id, "p"}},
		{id, nil, []string{sequence, "1"}},
		{id, nil, []string{id, "p", id, "p", sequence, "1"}},
		{sequence, nil, []string{id, "p", sequence, "1", sequence, "1"}},
		{sequence, float64(queue.MaxOffset), []string{id, "p", sequence, "-1"}},
		{sequence, float64(queue.MaxOffset), []string{id, "p", sequence, "1.5"}},
		{sequence, float64(queue.MaxOffset), []string{id, "p", sequence, "01"}},
		{sequence, 1.0, []string{id, "p", sequence, "0"}},
		{sequence, float64(queue.MaxOffset), []string{id, "p", sequence, "9007199254740992"}},
		{id, nil, []string{id, "\xff", sequence, "1"}},
		{id, nil, []string{id, "", sequence, "1"}},
		{id, 128.0, []string{id, strings.Repeat("p", 129), sequence, "1"}},
		{key, nil, []string{key, ""}},
		{key, nil, []string{key, "a", key, "b"}},
		{key, nil, []string{key, "\x01"}},
	} {
		got := newAPI().do(t, "POST", "/v1/topics/orders/messages", "batch", append([]string{"Content-Type", wire.MediaTypeBatch}, c.headers...)...)
		e := got.fault()
		if got.StatusCode != 400 || e.Details == nil || e.Details.Field != c.field || !strings.HasPrefix(e.Message, c.field+": ") ||
			fmt.Sprint(e.Details.Limit) != fmt.Sprint(c.limit) {
			t.Errorf("%.80q: %d %s", c.headers, got.StatusCode, got.body)
		}
	}
}

// TestRefusedSequenceOfABatch: what the use case says of a sequence names the header, too.
func TestRefusedSequenceOfABatch(t *testing.T) {
	old := &queue.Error{Kind: queue.KindConflict, Code: queue.CodeSequenceOutOfOrder, Field: "producer.sequence", Message: "old"}
	a := newAPI()
	a.answer = &produce.Answer{Runs: []produce.Run{{Count: 1, Err: old}}}
	header := []string{"Content-Type", wire.MediaTypeBatch, "Spillway-Producer-Id", "p", "Spillway-Producer-Sequence", "1"}
	got := a.do(t, "POST", "/v1/topics/orders/messages", "batch", header...)
	if !strings.Contains(string(got.body), `"details":{"field":"Spillway-Producer-Sequence"}`) {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	got = a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[{}],"producer":{"id":"p","sequence":1}}`)
	if !strings.Contains(string(got.body), `"details":{"field":"producer.sequence"}`) {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}

// TestProducerHeadersBesideJSON: they would do nothing there, and whoever sends them believes that a
// retry is safe.
func TestProducerHeadersBesideJSON(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/topics/orders/messages":   `{"messages":[{}]}`,
		"/v1/topics/orders/references": `{"references":[{"object":"uploads/a","format":"payload"}]}`,
	} {
		for _, name := range []string{"Spillway-Producer-Id", "Spillway-Producer-Sequence"} {
			got := newAPI().do(t, "POST", path, body, name, "1")
			if e := got.fault(); got.StatusCode != 400 || e.Details == nil || e.Details.Field != name {
				t.Errorf("%s %s: %d %s", path, name, got.StatusCode, got.body)
			}
		}
	}
}

// TestUseCaseThatAnswersNonsense: runs that do not cover the call are a fault of ours, not an answer.
func TestUseCaseThatAnswersNonsense(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		a := newAPI()
		answer := a.answerFor(n, nil)
		a.answer = &answer
		if got := a.do(t, "POST", "/v1/topics/orders/messages", `{"messages":[{},{}]}`); got.StatusCode != 500 {
			t.Errorf("%d runs of one: %s", n, got.body)
		}
	}
}
