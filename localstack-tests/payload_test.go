//go:build localstack

package localstack

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"testing"
)

func checksum(data []byte) string {
	return fmt.Sprintf("crc32c:%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

// download gets what a claim's reference points to and checks it against the reference.
func (d *deployment) download(t *testing.T, m message) []byte {
	t.Helper()
	r := m.Reference
	if r == nil {
		t.Fatalf("no reference in %.300v", m)
	}
	headers := map[string]string{"Range": fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1)}
	for k, v := range r.Headers {
		headers[k] = v
	}
	a := d.fetch(t, "GET", r.URL, headers, nil)
	if a.status != http.StatusOK && a.status != http.StatusPartialContent || len(a.body) != r.Length {
		t.Fatalf("download of %d bytes: %d bytes, %.300v", r.Length, len(a.body), a)
	}
	if r.Checksum != "" && checksum(a.body) != r.Checksum {
		t.Errorf("downloaded %s, the reference says %s", checksum(a.body), r.Checksum)
	}
	return a.body
}

// upload takes a body past the functions: presigned PUT, reference, claim by reference, presigned GET.
func upload(t *testing.T, d *deployment) {
	d.topic(t, "files", object{}, object{})
	payload := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // 8 MiB: more than any call could carry
	var made struct {
		Uploads []struct {
			Object, URL, Method string
			Headers             map[string]string
		}
	}
	ask := object{"objects": []object{{"size": len(payload), "checksum": checksum(payload)}, {"size": 5, "checksum": checksum([]byte("later"))}}}
	d.call(t, "POST", "/v1/topics/files/uploads", ask).into(t, &made)
	if len(made.Uploads) != 2 {
		t.Fatalf("uploads: %+v", made)
	}
	u := made.Uploads[0]
	other := bytes.Clone(payload)
	other[1]++
	if a := d.fetch(t, u.Method, u.URL, u.Headers, other); a.status < 400 {
		t.Errorf("an upload of other bytes than were asked for: %v", a)
	}
	if a := d.fetch(t, u.Method, u.URL, u.Headers, payload); a.status != http.StatusOK {
		t.Fatalf("upload: %v", a)
	}
	if a := d.fetch(t, u.Method, u.URL, u.Headers, payload); a.status != http.StatusPreconditionFailed {
		t.Errorf("the same upload again: %v", a)
	}
	var out results
	d.call(t, "POST", "/v1/topics/files/references", object{"references": []object{
		{"object": u.Object, "format": "payload", "key": "f", "headers": object{"name": "big"}},
		{"object": made.Uploads[1].Object, "format": "payload"}, // was never uploaded
	}}).into(t, &out)
	if len(out.Results) != 2 || out.Results[0].ID == "" || out.Results[1].Error == nil {
		t.Fatalf("references: %+v", out)
	}
	got := d.claim(t, "files", object{"max_messages": 10, "deliver": "reference", "wait": 5})
	if len(got) != 1 || got[0].Key != "f" || got[0].Headers["name"] != "big" || got[0].Reference == nil || got[0].Reference.Format != "payload" {
		t.Fatalf("claimed %.500v", got)
	}
	if !bytes.Equal(d.download(t, got[0]), payload) {
		t.Error("the payload came back otherwise")
	}
	d.ack(t, "files", got...)
}

// largeClaim: no answer passes Lambda's 6 MB. A claim gives fewer messages than asked for, and one whose body alone
// is too large comes by reference though inline was asked for.
func largeClaim(t *testing.T, d *deployment) {
	d.topic(t, "large", object{"max_message_bytes": 8 << 20}, object{})
	bodies := map[string]string{}
	for i, size := range []int{2 << 20, 4 << 20, 2 << 20, 4 << 20} {
		body := strings.Repeat(fmt.Sprint(i), size)
		bodies[d.produce(t, "large", object{"body": body})[0].ID] = body
	}
	inline, referred := 0, 0
	for range 2 * len(bodies) {
		a := d.call(t, "POST", "/v1/topics/large/subscriptions/s/claims", object{"max_messages": 10, "max_bytes": 16 << 20})
		if len(a.body) > 6_000_000 {
			t.Errorf("an answer of %d bytes", len(a.body))
		}
		var out struct{ Messages []message }
		a.into(t, &out)
		for _, m := range out.Messages {
			body := []byte(m.Body)
			if m.Reference == nil {
				inline++
			} else {
				body = d.download(t, m)
				referred++
			}
			// By reference it may be the batch that holds the body.
			if !bytes.Contains(body, []byte(bodies[m.ID])) {
				t.Errorf("%s came back otherwise: %d bytes for %d", m.ID, len(body), len(bodies[m.ID]))
			}
		}
		d.ack(t, "large", out.Messages...)
	}
	if inline != 2 || referred != 2 {
		t.Errorf("%d inline and %d by reference, of two each", inline, referred)
	}
}

// sizes are bodies on both sides of the bounds.
func sizes(t *testing.T, d *deployment) {
	d.topic(t, "sizes", object{"max_message_bytes": 8 << 20}, object{})
	body := strings.Repeat("x", 4<<20)
	d.produce(t, "sizes", object{"body": body})
	got := d.claim(t, "sizes", object{"wait": 5})
	if len(got) != 1 || got[0].Body != body && got[0].Reference == nil {
		t.Errorf("a message of 4 MiB: %.300v", got)
	}
	// Lambda takes 6 MB, API Gateway 10 MB. What is above either is refused, by whom is theirs to say, and
	// never accepted in part.
	over := object{"messages": []object{{"body": strings.Repeat("x", 11<<20)}}}
	if a := d.call(t, "POST", "/v1/topics/sizes/messages", over); a.status < 400 {
		t.Errorf("a body of 11 MiB: %.300v", a)
	}
	var out results
	d.topic(t, "small", object{"max_message_bytes": 10}, object{})
	d.call(t, "POST", "/v1/topics/small/messages", object{"messages": []object{{"body": "0123456789"}, {"body": "0123456789a"}}}).into(t, &out)
	if len(out.Results) != 2 || out.Results[0].ID == "" || out.Results[1].Error == nil || out.Results[1].Error.Code != "too_large" {
		t.Errorf("one at the bound and one above: %+v", out)
	}
	if after := d.claim(t, "sizes", object{}); len(after) != 0 {
		t.Errorf("what was refused can be claimed: %.300v", after)
	}
}
