package load

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
)

// verify reads everything back and holds it against the ledger.
func (d *Load) verify(ctx context.Context, t testing.TB) {
	t.Helper()
	l := d.Ledger
	copies := make(map[string][]string) // body to ids
	last := make(map[string]place)      // by producer and key
	for topic := range Subscriptions() {
		for _, r := range ReadTopic(ctx, t, d.Target, topic) {
			id, body := r.ID, r.Body
			copies[body] = append(copies[body], id)
			l.mu.Lock()
			if m, known := l.sent[body]; known && m.ordered {
				l.follow(last, r)
			} else if !known {
				l.violate("invariant 1: %s holds a body that nobody sent: %q", id, body)
			}
			l.identify(id, body)
			for _, sub := range Subscriptions()[topic] {
				if !l.asked[topic+"/"+sub+" "+id] {
					l.violate("invariant 7: %s (%q) was never delivered to be acked by %s/%s", id, body, topic, sub)
				}
			}
			l.mu.Unlock()
		}
	}
	l.mu.Lock()
	for body, m := range l.sent {
		ids := copies[body]
		switch {
		case m.acknowledged && len(ids) == 0:
			l.violate("invariant 1: %q was acknowledged (id %q) and is gone", body, m.id)
		case m.exact && len(ids) != 1:
			l.violate("invariant 3: %q is there %d times: %v", body, len(ids), ids)
		case len(ids) > 1:
			l.violate("invariant 3: %q was sent once and is there %d times: %v", body, len(ids), ids)
		case m.acknowledged && m.id != "" && ids[0] != m.id:
			l.violate("invariant 1: %q was acknowledged as %s and is %s", body, m.id, ids[0])
		}
	}
	l.mu.Unlock()
	for _, v := range l.report() {
		t.Error(v)
	}
}

// place is where in the order of its producer a message is: the call, and the message within it.
type place struct{ call, message uint64 }

// follow checks that a message is behind the one before it in its producer's order, of one key. It is called in the
// order of offsets, segment by segment: a key's messages are in one, as no segment is split here.
func (l *Ledger) follow(last map[string]place, r Record) {
	name, rest, _ := strings.Cut(r.Body, "/")
	var at place
	if _, err := fmt.Sscanf(rest, "%d/%d", &at.call, &at.message); err != nil {
		l.violate("invariant 1: %s holds %q", r.ID, r.Body)
		return
	}
	before, ok := last[name+" "+r.Key]
	if ok && (at.call < before.call || at.call == before.call && at.message <= before.message) {
		l.violate("invariant 3: %s, %q of key %q, is behind a later one, %v", r.ID, r.Body, r.Key, before)
	}
	last[name+" "+r.Key] = at
}

// Record is a message as the log has it.
type Record struct{ ID, Key, Body string }

// ReadTopic reads all segments of a topic as logs, in order. It checks that offsets are dense.
func ReadTopic(ctx context.Context, t testing.TB, from Target, topic string) []Record {
	t.Helper()
	var out []Record
	var list wire.SegmentList
	if err := Call(ctx, from, Request{http.MethodGet, "/v1/topics/" + topic + "/segments", nil, nil}, &list); err != nil {
		t.Fatal(err)
	}
	for _, seg := range list.Segments {
		next := seg.FirstOffset
		for next < seg.NextOffset {
			var page wire.RecordList
			q := url.Values{"offset": {fmt.Sprint(next)}, "limit": {"500"}}
			path := "/v1/topics/" + topic + "/segments/" + string(seg.ID) + "/records?" + q.Encode()
			if err := Call(ctx, from, Request{http.MethodGet, path, nil, nil}, &page); err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Records {
				if want := fmt.Sprintf("%s-%d", seg.ID, next); m.ID != want || m.Body == nil {
					t.Fatalf("invariant 2: offset %d of segment %s reads as %+v", next, seg.ID, m)
				}
				out = append(out, Record{m.ID, m.Key, *m.Body})
				next++
			}
			if len(page.Records) == 0 {
				t.Fatalf("invariant 1: segment %s ends at %d, its next offset is %d", seg.ID, next, seg.NextOffset)
			}
		}
	}
	return out
}
