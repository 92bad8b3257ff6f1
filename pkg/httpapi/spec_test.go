package httpapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestSpecHasEveryRouteAndNoOther(t *testing.T) {
	var have, want []string
	for _, r := range httpapi.Routes() {
		have = append(have, r.Method+" "+r.Pattern)
	}
	for path, item := range spec(t).Paths.Map() {
		for method := range item.Operations() {
			want = append(want, method+" "+path)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the server has\n%s\nthe spec has\n%s", strings.Join(have, "\n"), strings.Join(want, "\n"))
	}
	if len(slices.Compact(have)) != len(want) {
		t.Error("a route is there twice")
	}
}

func TestSpecListsEveryCode(t *testing.T) {
	var have, want []string
	for _, row := range queue.Codes() {
		have = append(have, string(row.Code))
	}
	for _, v := range spec(t).Components.Schemas["ErrorCode"].Value.Enum {
		want = append(want, v.(string))
	}
	if !slices.Equal(have, want) {
		t.Errorf("the table has\n%v\nthe spec has\n%v", have, want)
	}
}

// TestSpecLimits holds the numbers of the spec to their one definition.
func TestSpecLimits(t *testing.T) {
	schemas := spec(t).Components.Schemas
	property := func(schema, name string) (lo, hi float64) {
		t.Helper()
		p := schemas[schema].Value.Properties[name]
		if p == nil || p.Value.Min == nil || p.Value.Max == nil {
			t.Fatalf("%s.%s has no bounds", schema, name)
		}
		return *p.Value.Min, *p.Value.Max
	}
	for _, c := range []struct {
		schema, field string
		lo, hi        float64
	}{
		{"TopicConfig", "default_delay", 0, queue.MaxMaxDelay.Seconds()},
		{"TopicConfig", "max_delay", 0.001, queue.MaxMaxDelay.Seconds()},
		{"TopicConfig", "default_ttl", 0, queue.MaxTTL.Seconds()},
		{"TopicConfig", "max_message_bytes", 1, queue.MaxInlineMessageBytes},
		{"TopicPatch", "max_message_bytes", 1, queue.MaxInlineMessageBytes},
		{"Scaling", "min_segments", 1, queue.MaxSegments},
		{"Scaling", "max_segments", 0, queue.MaxSegments},
		{"SplitRequest", "into", 2, queue.MaxSplit},
		{"SubscriptionConfig", "visibility_timeout", queue.MinVisibilityTimeout.Seconds(), queue.MaxVisibilityTimeout.Seconds()},
		{"SubscriptionConfig", "max_deliveries", 0, queue.MaxDeliveries},
		{"SubscriptionConfig", "max_in_flight", 1, queue.MaxMaxInFlight},
		{"ClaimRequest", "max_messages", 1, queue.MaxClaimMessages},
		{"ClaimRequest", "max_bytes", 1, queue.MaxClaimBytes},
		{"ClaimRequest", "wait", 0, queue.MaxWait.Seconds()},
		{"ReleaseRequest", "delay", 0, queue.MaxVisibilityTimeout.Seconds()},
		{"ExtendRequest", "visibility_timeout", queue.MinVisibilityTimeout.Seconds(), queue.MaxVisibilityTimeout.Seconds()},
		{"DelayedPatch", "delay", 0, queue.MaxMaxDelay.Seconds()},
		{"Producer", "sequence", 1, float64(queue.MaxOffset)},
	} {
		if lo, hi := property(c.schema, c.field); lo != c.lo || hi != c.hi {
			t.Errorf("%s.%s: the spec says %v to %v, the code %v to %v", c.schema, c.field, lo, hi, c.lo, c.hi)
		}
	}
	if items := schemas["ProduceRequest"].Value.Properties["messages"].Value.MaxItems; *items != queue.MaxBatchRecords {
		t.Errorf("messages: %d", *items)
	}
	if items := schemas["Receipts"].Value.MaxItems; *items != queue.MaxReceipts {
		t.Errorf("receipts: %d", *items)
	}
	if items := schemas["MergeRequest"].Value.Properties["segments"].Value.MaxItems; *items != queue.MaxSplit {
		t.Errorf("segments to merge: %d", *items)
	}
	if items := schemas["SplitRequest"].Value.Properties["at"].Value.MaxItems; *items != queue.MaxSplit-1 {
		t.Errorf("slots to cut at: %d", *items)
	}
	if n := schemas["Name"].Value.MaxLength; *n != queue.MaxNameBytes {
		t.Errorf("names: %d", *n)
	}
	if n := schemas["Headers"].Value.MaxProps; *n != queue.MaxHeaders {
		t.Errorf("headers: %d", *n)
	}
	if p := spec(t).Components.Parameters["Limit"].Value.Schema.Value; *p.Max != queue.MaxPageSize {
		t.Errorf("limit: %v", *p.Max)
	}
}
