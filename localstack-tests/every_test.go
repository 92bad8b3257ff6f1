//go:build localstack

package localstack

import (
	"strings"
	"testing"
)

// everyCall makes each call of the API that the other parts do not, once, with success: its route is there, leads to
// the function that knows it, and that function has the rights.
func everyCall(t *testing.T, d *deployment) {
	const topic = "/v1/topics/every"
	d.topic(t, "every", object{"default_delay": 900}, object{})
	delayed := d.produce(t, "every", object{"body": "x"}, object{"body": "now", "delay": 0})
	if delayed[0].DelayedID == "" || delayed[1].ID == "" {
		t.Fatalf("produced %+v", delayed)
	}
	var segments struct{ Segments []struct{ ID string } }
	d.call(t, "GET", topic+"/segments", nil).into(t, &segments)
	if len(segments.Segments) == 0 {
		t.Fatal("no segments")
	}
	for _, c := range []struct {
		method, path string
		body         any
	}{
		{"GET", "/v1/topics?prefix=ev&limit=5", nil},
		{"PATCH", topic, object{"max_message_bytes": 100000, "default_ttl": 3600}},
		{"GET", topic + "/messages/" + delayed[1].ID, nil},
		{"GET", topic + "/messages?include_delayed=true", nil},
		{"GET", topic + "/segments/" + segments.Segments[0].ID + "/records?offset=0&limit=5", nil},
		{"GET", topic + "/delayed?limit=5", nil},
		{"GET", topic + "/delayed/" + delayed[0].DelayedID, nil},
		{"PATCH", topic + "/delayed/" + delayed[0].DelayedID, object{"body": "edited", "delay": 800}},
		// A body that becomes an object, and headers that want its bytes read.
		{"PATCH", topic + "/delayed/" + delayed[0].DelayedID, object{"body": strings.Repeat("long ", 4000), "delay": 700}},
		{"PATCH", topic + "/delayed/" + delayed[0].DelayedID, object{"headers": object{"h": "1"}}},
		{"DELETE", topic + "/delayed/" + delayed[0].DelayedID, nil},
		{"GET", topic + "/subscriptions", nil},
		{"GET", topic + "/subscriptions/s", nil},
		{"PATCH", topic + "/subscriptions/s", object{"visibility_timeout": 60}},
		{"POST", topic + "/subscriptions/s/claims", object{}},
		{"POST", topic + "/subscriptions/s/seek", object{"to": "earliest"}},
		{"DELETE", topic + "/subscriptions/s", nil},
		{"DELETE", topic, nil},
	} {
		if a := d.call(t, c.method, c.path, c.body); a.status/100 != 2 {
			t.Errorf("%s %s: %v", c.method, c.path, a)
		}
	}
	if a := d.call(t, "GET", topic, nil); a.status != 404 {
		t.Errorf("the deleted topic: %v", a)
	}
}
