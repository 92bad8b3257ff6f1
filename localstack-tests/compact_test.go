//go:build localstack

package localstack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// hasty is how the compactor of the tests' deployment is tuned: it merges and deletes within minutes. Nobody
// reads these deployments by a page that is older.
const hasty = "compact=age=5s,grace=5s,target=2048"

// compacted: the compactor, run by its schedule, merges small batches for real, deletes what it has replaced,
// and removes a deleted topic; what readers see stays the same to the last byte.
func compacted(t *testing.T, d *deployment) {
	const calls, each = 100, 5 // the second roll of such calls leaves a note
	d.topic(t, "compacted", object{}, object{})
	for i := range calls {
		var messages []object
		for j := range each {
			// Now and then a call whose bytes go to an object.
			size := 20
			if i%10 == 0 {
				size = 2500
			}
			messages = append(messages, object{"key": fmt.Sprintf("k%d", j), "body": fmt.Sprintf("%d/%d %s", i, j, strings.Repeat("x", size))})
		}
		d.produce(t, "compacted", messages...)
	}
	want := d.everything(t, "compacted")
	if len(want) != calls*each {
		t.Fatalf("%d messages, want %d", len(want), calls*each)
	}
	d.topic(t, "doomed", object{}, object{})
	d.produce(t, "doomed", object{"body": strings.Repeat("y", 9000)})
	if a := d.call(t, "DELETE", "/v1/topics/doomed", nil); a.status/100 != 2 {
		t.Fatalf("delete: %v", a)
	}
	before := d.stored(t, "batches/")
	// The first run merges, the next one deletes; a removal takes some more.
	const patience = 6 * time.Minute
	eventually(t, patience, "batches are merged", func() bool { return d.stored(t, "segments/") > 0 })
	eventually(t, patience, "what was replaced is deleted", func() bool { return d.stored(t, "batches/") < before-1 })
	if got := d.everything(t, "compacted"); !maps.Equal(got, want) {
		t.Errorf("after compaction readers see %d messages that differ from the %d before", len(got), len(want))
	}
	deleted := 0
	for _, r := range d.runs(t, d.stack, "Compactor") {
		deleted += r.Deleted
	}
	if deleted == 0 {
		t.Error("the compactor's metrics tell of no deletion")
	}
}

// everything reads a topic through the gateway: the body of each message by its id.
func (d *deployment) everything(t *testing.T, topic string) map[string]string {
	t.Helper()
	var segments struct{ Segments []struct{ ID string } }
	d.call(t, "GET", "/v1/topics/"+topic+"/segments", nil).into(t, &segments)
	out := make(map[string]string)
	for _, seg := range segments.Segments {
		for next := int64(0); ; {
			var got struct {
				Records    []message `json:"records"`
				NextOffset int64     `json:"next_offset"`
			}
			d.call(t, "GET", fmt.Sprintf("/v1/topics/%s/segments/%s/records?offset=%d&limit=200", topic, seg.ID, next), nil).into(t, &got)
			for _, m := range got.Records {
				out[m.ID] = m.Key + " " + m.Body
			}
			if got.NextOffset == next || len(got.Records) == 0 {
				break
			}
			next = got.NextOffset
		}
	}
	return out
}

// stored counts the deployment's objects under a prefix, at most 1,000.
func (d *deployment) stored(t *testing.T, prefix string) int {
	t.Helper()
	target := d.url + "/" + d.BucketName + "?list-type=2&prefix=" + url.QueryEscape(prefix)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	empty := sha256.Sum256(nil)
	req.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(empty[:]))
	a, err := d.send(t.Context(), "s3", req, nil)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("list objects: %v, %v", a, err)
	}
	return strings.Count(string(a.body), "<Key>")
}
