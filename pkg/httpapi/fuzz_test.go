package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// fuzzPost posts any body; whatever it is, the answer has its form and is no fault of the server. The
// request is not held against the spec: a call is taken that has one bad entry.
func fuzzPost(f *testing.F, target string, setup func(*api)) {
	f.Fuzz(func(t *testing.T, body []byte) {
		a := newAPI()
		if setup != nil {
			setup(a)
		}
		r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(string(body)))
		got := a.send(t, r, "")
		if got.StatusCode >= 500 {
			t.Errorf("%d %s", got.StatusCode, got.body)
		}
		if got.StatusCode < 300 && !json.Valid(got.body) {
			t.Errorf("no JSON: %s", got.body)
		}
	})
}

func FuzzProduceJSON(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"key":"c42","body":"{…}","headers":{"kind":"new"},"delay":30,"ttl":3600,"dedup_id":"…"}],"producer":{"id":"p-1","sequence":17}}`,
		`{"messages":[{"body_base64":"/w=="},{"key_base64":"/w==","body":""}]}`, `{"messages":[]}`, ``, `{"messages":[{"ttl":1e999}]}`,
	} {
		f.Add([]byte(s))
	}
	fuzzPost(f, "/v1/topics/orders/messages", nil)
}

func FuzzClaimJSON(f *testing.F) {
	for _, s := range []string{`{"max_messages":10,"max_bytes":5,"wait":5,"visibility_timeout":30,"deliver":"inline"}`, `{"deliver":"reference"}`, ``} {
		f.Add([]byte(s))
	}
	data := encoded(f, batch.CodecZstd, batch.Record{Key: []byte("k"), Body: []byte("x")})
	fuzzPost(f, claims, func(a *api) { a.deliveries = []consume.Delivery{deliver(data, 1)} })
}

// FuzzDeliveries gives the edge deliveries whose bytes are anything: a damaged store must not take the
// server down.
func FuzzDeliveries(f *testing.F) {
	f.Add(encoded(f, batch.CodecZstd, batch.Record{Key: []byte("k"), Body: []byte("x")}, batch.Record{Slot: 1}), uint8(2), uint32(0))
	f.Add(encoded(f, batch.CodecNone, batch.Record{Key: []byte("k"), Body: []byte("x")}), uint8(1), uint32(7))
	f.Fuzz(func(t *testing.T, data []byte, count uint8, first uint32) {
		a := newAPI()
		d := deliver(data, max(1, int(count)))
		d.First = first
		a.deliveries = []consume.Delivery{d}
		var out wire.MessageList
		if err := json.Unmarshal(send(a, claims, ""), &out); err != nil || len(out.Messages) != d.Count {
			t.Errorf("%d messages for %d: %v", len(out.Messages), d.Count, err)
		}
		r := httptest.NewRequest(http.MethodPost, claims, nil)
		r.Header.Set("Accept", wire.MediaTypeBatch)
		w := httptest.NewRecorder()
		a.handler.ServeHTTP(w, r)
		if n := len(frames(t, w.Body.Bytes())); n != 1 {
			t.Errorf("%d frames", n)
		}
	})
}

func FuzzPathsAndQuery(f *testing.F) {
	for method, targets := range map[string][]string{
		"GET": {
			"/v1/topics?prefix=a&limit=5&cursor=MWE", "/v1/topics/orders/messages?from=2026-01-01T00:00:00Z&include_delayed=true",
			"/v1/topics/orders/segments/0123456789abcdef/records?offset=1&limit=2&wait=0.5", "/v1/topics/a%2Fb", "/v1//topics", "/v1/topics/..",
			"/v1/topics/orders/messages/0123456789abcdef-1", "/v1/topics/orders/delayed/1-0123456789abcdef-0", "/healthz", "/v1/openapi.yaml",
			"/v1/topics/orders/segments?state=open&limit=1&cursor=MWE", "/v1/events?topic=orders&limit=1000&cursor=MWE",
		},
		"POST": {
			"/v1/topics/orders/segments/0123456789abcdef/split", "/v1/topics/orders/segments/merge?x=1",
			"/v1/topics/orders/subscriptions/billing/claims", "/v1/topics/orders/messages",
		},
		"BREW": {"/v1/topics"}, "HEAD": {"/readyz"}, "CONNECT": {"/v1/topics"},
	} {
		for _, target := range targets {
			f.Add(method, target)
		}
	}
	f.Fuzz(func(t *testing.T, method, target string) {
		where, err := url.ParseRequestURI(target)
		if err != nil || strings.ContainsAny(method, " \t\r\n") || method == "" {
			return // net/http does not let it through
		}
		a := newAPI()
		r := httptest.NewRequest(http.MethodGet, "http://queue.test/", nil)
		r.Method, r.URL, r.RequestURI = method, where, target
		got := a.send(t, r, "")
		if got.StatusCode >= 500 || got.StatusCode >= 300 && got.StatusCode < 400 {
			t.Errorf("%s %q: %d %s", method, target, got.StatusCode, got.body)
		}
	})
}
