package queue_test

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestSlotVectors(t *testing.T) {
	// Pinned: a slot never changes. docs/FORMAT.md gives the same to writers of other clients.
	for key, want := range map[string]queue.Slot{"": 61392, "a": 33442, "c42": 40308, "order-1": 18715} {
		if got := queue.SlotOf([]byte(key)); got != want {
			t.Errorf("slot of %q is %d, want %d", key, got, want)
		}
	}
}

func TestSlotsAreEven(t *testing.T) {
	const keys, buckets = 100_000, 64
	var n [buckets]int
	for i := range keys {
		n[int(queue.SlotOf(fmt.Appendf(nil, "customer-%d", i)))*buckets/queue.Slots]++
	}
	for i, c := range n {
		if mean := keys / buckets; c < mean*85/100 || c > mean*115/100 {
			t.Errorf("bucket %d holds %d of %d sequential keys, the mean is %d", i, c, keys, mean)
		}
	}
}

func TestTile(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 64, 1000, queue.MaxSegments} {
		edge, least, most := uint32(0), uint32(math.MaxUint32), uint32(0)
		for _, r := range queue.Tile(n) {
			if r.Lo != edge || !r.Valid() {
				t.Fatalf("%d tiles: %v follows %d", n, r, edge)
			}
			edge = r.Hi
			least, most = min(least, r.Len()), max(most, r.Len())
			for _, s := range []uint32{r.Lo, (r.Lo + r.Hi) / 2, r.Hi - 1} {
				if b := r.LoadBucket(queue.Slot(s)); b < 0 || b >= queue.LoadBuckets {
					t.Errorf("slot %d of %v counts in bucket %d", s, r, b)
				}
			}
		}
		if edge != queue.Slots || most-least > 1 {
			t.Errorf("%d tiles end at %d, lengths are %d to %d", n, edge, least, most)
		}
	}
}

func TestIDsRoundTrip(t *testing.T) {
	ids := queue.NewIDs(nil)
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.Uint64Range(0, uint64(queue.MaxOffset)).Draw(t, "offset")
		m := queue.MessageID{Segment: ids.Segment(), Offset: queue.Offset(off)}
		if got, err := queue.ParseMessageID(m.String()); err != nil || got != m {
			t.Errorf("%v reads back as %v, %v", m, got, err)
		}
		d := queue.DelayedID{
			Visible: queue.Millis(rapid.Int64Range(1, int64(queue.MaxOffset)).Draw(t, "visible")), Entry: ids.Entry(),
			Index: rapid.Uint32Range(0, queue.MaxBatchRecords-1).Draw(t, "index"),
		}
		if got, err := queue.ParseDelayedID(d.String()); err != nil || got != d {
			t.Errorf("%v reads back as %v, %v", d, got, err)
		}
		r := queue.Receipt{Segment: ids.Segment(), Claim: ids.Claim(), Lo: queue.Offset(off)}
		r.Hi = r.Lo + queue.Offset(rapid.Uint64Range(1, queue.MaxClaimMessages).Draw(t, "count"))
		if got, err := queue.ParseReceipt(r.String()); err != nil || got != r {
			t.Errorf("%v reads back as %v, %v", r, got, err)
		}
	})
}

func TestBadIDs(t *testing.T) {
	for _, s := range []string{
		"", "-", "0123456789abcdef", "0123456789abcdef-", "0123456789abcdef--1", "0123456789abcdef-01", "0123456789abcdef-+1",
		"0123456789abcdef-9007199254740992", "0123456789abcde-1", "0123456789abcdeI-1", "0123456789abcdef-1-1", "0123456789abcdef-1 ",
		"0123456789abcd\n\n-1",
	} {
		if _, err := queue.ParseMessageID(s); queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Errorf("message id %q: %v", s, err)
		}
	}
	for _, s := range []string{"", "1-0123456789abcdef", "0-0123456789abcdef-0", "1-0123456789abcdef-10000", "-1-0123456789abcdef-0", "1-x-0"} {
		if _, err := queue.ParseDelayedID(s); queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Errorf("delayed id %q: %v", s, err)
		}
	}
	good := queue.Receipt{Segment: queue.NewIDs(nil).Segment(), Hi: 1}.String()
	for _, s := range []string{"", "x", good[:len(good)-1], good + "A", strings.Repeat("A", 1000), good + "=", " " + good} {
		if _, err := queue.ParseReceipt(s); queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Errorf("receipt %q: %v", s, err)
		}
	}
}

func FuzzParsers(f *testing.F) {
	f.Add("0123456789abcdef-1")
	f.Add("1-0123456789abcdef-0")
	f.Add(queue.Receipt{Segment: "0123456789abcdef", Hi: 3}.String())
	f.Fuzz(func(t *testing.T, s string) {
		// Whatever parses is written in one way only, so that ids can be compared as text.
		if m, err := queue.ParseMessageID(s); err == nil && m.String() != s {
			t.Errorf("message id %q is also written %q", s, m)
		}
		if d, err := queue.ParseDelayedID(s); err == nil && d.String() != s {
			t.Errorf("delayed id %q is also written %q", s, d)
		}
		if r, err := queue.ParseReceipt(s); err == nil && (r.Lo >= r.Hi || !queue.ValidID(string(r.Segment))) {
			t.Errorf("receipt %q reads as %+v", s, r)
		}
	})
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"orders": true, "shop.orders.eu": true, "A-Z_0.9": true, strings.Repeat("a", queue.MaxNameBytes): true,
		"": false, ".": false, "a.": false, ".a": false, "a..b": false, "a/b": false, "a b": false, "ä": false, "a\x00": false,
		"..": false, strings.Repeat("a", queue.MaxNameBytes+1): false, "%2e": false, "a\n": false,
	} {
		if err := queue.ValidateTopicName("topic", name); (err == nil) != ok {
			t.Errorf("topic name %q: %v", name, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	many := make(map[string]string)
	for i := range queue.MaxHeaders + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, tc := range map[string]struct {
		headers map[string]string
		ok      bool
	}{
		"none":                   {nil, true},
		"some":                   {map[string]string{"kind": "new", "empty": ""}, true},
		"at the limit":           {map[string]string{"n": strings.Repeat("x", queue.MaxHeadersBytes-1)}, true},
		"past the limit":         {map[string]string{"n": strings.Repeat("x", queue.MaxHeadersBytes)}, false},
		"too many":               {many, false},
		"empty name":             {map[string]string{"": "x"}, false},
		"control in name":        {map[string]string{"a\nb": "x"}, false},
		"value is not UTF-8":     {map[string]string{"a": "\xff"}, false},
		"name is not UTF-8":      {map[string]string{"\xff": ""}, false},
		"name past its limit":    {map[string]string{strings.Repeat("n", queue.MaxHeaderNameBytes+1): ""}, false},
		"newline in a value, ok": {map[string]string{"a": "x\ny"}, true},
	} {
		if err := queue.ValidateHeaders("headers", tc.headers); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEntryNameFault: the field of a fault in a name is the map, as no field has a space in it.
func TestEntryNameFault(t *testing.T) {
	var e *queue.Error
	err := queue.ValidateEntryName("headers", strings.Repeat("n", queue.MaxHeaderNameBytes+1))
	if !errors.As(err, &e) || e.Field != "headers" || e.Limit != queue.MaxHeaderNameBytes || e.Message != "headers: a name is longer than 256 bytes" {
		t.Errorf("%#v", err)
	}
}

// TestSecondsInMessages: limits are written as people write them.
func TestSecondsInMessages(t *testing.T) {
	for in, want := range map[float64]string{
		31622401: "delay: must be at most 31622400 seconds, not 31622401",
		0.0001:   "delay: must be at least 0.001 seconds, not 0.0001",
		1e300:    "delay: must be at most 31622400 seconds, not 1e+300",
	} {
		if _, err := queue.Seconds("delay", in, time.Millisecond, queue.MaxMaxDelay); err == nil || err.Error() != want {
			t.Errorf("%g: %v, want %s", in, err, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for _, tc := range []struct {
		in   float64
		want time.Duration
		ok   bool
	}{
		{0, 0, true},
		{1.5, 1500 * time.Millisecond, true},
		{0.0004, 0, true},
		{0.0005, time.Millisecond, true},
		{900, 900 * time.Second, true},
		{900.001, 0, false},
		{-0.001, 0, false},
		{math.NaN(), 0, false},
		{math.Inf(1), 0, false},
		{math.Inf(-1), 0, false},
		{1e300, 0, false},
	} {
		got, err := queue.Seconds("delay", tc.in, 0, 900*time.Second)
		if (err == nil) != tc.ok || got != tc.want {
			t.Errorf("%g seconds give %v, %v", tc.in, got, err)
		}
		var e *queue.Error
		if err != nil && (!errors.As(err, &e) || e.Field != "delay") {
			t.Errorf("the error for %g does not name the field: %v", tc.in, err)
		}
	}
}

func TestCodes(t *testing.T) {
	seen := make(map[queue.Code]bool)
	for _, row := range queue.Codes() {
		if seen[row.Code] || row.Doc == "" || row.Status < 400 || row.Status > 599 {
			t.Errorf("row %+v", row)
		}
		seen[row.Code] = true
	}
	for k := queue.KindInternal; k <= queue.KindCanceled; k++ {
		if e := (&queue.Error{Kind: k}); !seen[e.APICode()] {
			t.Errorf("kind %v has the code %q, which is not in the table", k, e.APICode())
		}
	}
	if queue.Code("no such code").Status() != 500 {
		t.Error("an unknown code is not answered as internal")
	}
}

func TestErrors(t *testing.T) {
	cause := io.ErrUnexpectedEOF
	err := fmt.Errorf("outer: %w", &queue.Error{Op: "commit head", Subject: "abc", Kind: queue.KindUnavailable, Err: cause})
	if !errors.Is(err, cause) || queue.KindOf(err) != queue.KindUnavailable || !queue.Is(err, queue.KindUnavailable) || !queue.Retryable(err) {
		t.Errorf("%v lost what it was made of", err)
	}
	if want := `outer: commit head "abc": unavailable: unexpected EOF`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if queue.KindOf(cause) != queue.KindInternal || queue.Is(cause, queue.KindInternal) || queue.Retryable(nil) {
		t.Error("an error that is not ours has a kind of ours")
	}
}

func TestMillis(t *testing.T) {
	if !queue.Millis(0).Time().IsZero() || queue.MillisOf(time.Time{}) != 0 || queue.Millis(0).String() != "" {
		t.Error("0 does not stand for none")
	}
	m := queue.MillisOf(time.Date(2026, 11, 30, 12, 0, 0, 123_999_999, time.FixedZone("", 3600)))
	if m.String() != "2026-11-30T11:00:00.123Z" || m.Add(time.Second).Sub(m) != time.Second {
		t.Errorf("got %s", m)
	}
}

// TestTimesFit: what is deleted is out of everyone's reach by then, and what is compacted out of every
// writer's.
func TestTimesFit(t *testing.T) {
	if reach := queue.PageTTL + queue.PresignTTL + 2*queue.ClockSlack; reach >= queue.GracePeriod {
		t.Errorf("a URL made from a cached page may live %v, the grace period is %v", reach, queue.GracePeriod)
	}
	if late := queue.MaxCommitDelay + queue.CommitTimeout + queue.ClockSlack; late >= queue.CompactAge || late >= queue.GracePeriod {
		t.Errorf("a commit may come %v late, pages are compacted after %v", late, queue.CompactAge)
	}
	if queue.IdempotencyWindow+queue.CommitTimeout > queue.MaxCommitDelay {
		t.Error("a retry within its window could be too late to commit")
	}
}
