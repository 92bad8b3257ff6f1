package httpapi

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// asJSON is what encoding/json gives, as the API writes it.
func asJSON(t interface{ Fatal(...any) }, v any) string {
	var buf bytes.Buffer
	if err := encodeJSON(&buf, v); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(buf.Bytes(), []byte("\n")))
}

// FuzzText holds text to encoding/json's form of it.
func FuzzText(f *testing.F) {
	for _, text := range []string{"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "é😀\u2027\u2028\u2029\u202a<>&", "\xe2\x80", "\xe2\x80\xa8x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		want := asJSON(t, text)
		if got := string(appendText(nil, text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
		if got := string(appendText([]byte("x"), []byte(text))); got != "x"+want {
			t.Errorf("bytes of %q: %s, want x%s", text, got, want)
		}
	})
}

func millis(t *rapid.T, name string) queue.Millis {
	return queue.Millis(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, int64(queue.MaxOffset)/64)).Draw(t, name))
}

func someBytes(t *rapid.T, name string) []byte {
	return rapid.OneOf(
		rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.Map(rapid.StringN(0, 30, -1), func(s string) []byte { return []byte(s) }),
	).Draw(t, name)
}

// TestPlainMessages holds the messages rendered by hand to encoding/json's form of wire.Message.
func TestPlainMessages(t *testing.T) {
	ids := queue.NewIDs(nil)
	rapid.Check(t, func(t *rapid.T) {
		f := &wire.Frame{Claimed: rapid.Bool().Draw(t, "claimed")}
		headers, err := batch.MakeHeaders(rapid.MapOfN(
			rapid.StringMatching(`[a-z"\\<é]{1,6}`), rapid.String(), 0, 4).Draw(t, "headers"))
		if err != nil {
			return // a control character, which no producer may send
		}
		d := wire.Delivered{
			ID:  queue.MessageID{Segment: ids.Segment(), Offset: queue.Offset(rapid.Uint64Range(0, uint64(queue.MaxOffset)).Draw(t, "offset"))},
			Key: someBytes(t, "key"), Body: someBytes(t, "body"), Headers: headers,
			DedupID: []byte(rapid.StringMatching(`[a-z"é]{0,5}`).Draw(t, "dedup")),
			Attempt: rapid.Uint32Range(0, 3).Draw(t, "attempt"), Created: millis(t, "created"), Visible: millis(t, "visible"),
			Expires: millis(t, "expires"), ClaimExpires: millis(t, "claim"),
		}
		d.Receipt = queue.Receipt{Segment: d.ID.Segment, Claim: ids.Claim(), Lo: d.ID.Offset, Hi: d.ID.Offset + 1}
		want := asJSON(t, messageOf(f, &d, nil))
		if got := string(appendMessage(nil, f.Claimed, &d)); got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
		var buf bytes.Buffer
		buf.WriteString("[")
		if err := renderMessage(&buf, f, d, nil); err != nil || buf.String() != "["+want+"\n" {
			t.Fatalf("%s, %v\nwant %s", buf.String(), err, want)
		}
	})
}

// TestPlainResults does the same for the results of a produce call.
func TestPlainResults(t *testing.T) {
	ids := queue.NewIDs(nil)
	rapid.Check(t, func(t *rapid.T) {
		run := produce.Run{
			Count: 9, ID: queue.MessageID{Segment: ids.Segment(), Offset: queue.Offset(rapid.Uint32().Draw(t, "offset"))},
			Created: millis(t, "created"), Visible: millis(t, "visible"), Expires: millis(t, "expires"),
		}
		k := rapid.IntRange(0, 8).Draw(t, "k")
		if !plainRun(&run) {
			t.Fatal("the run is plain")
		}
		want := asJSON(t, resultOf(&run, "messages", k))
		if got := string(appendResult(nil, &run, k)); got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
	})
	delayed := queue.DelayedID{Visible: 1, Entry: ids.Entry()}
	for name, run := range map[string]produce.Run{
		"refused": {Err: &queue.Error{Kind: queue.KindSealed}}, "delayed": {Delayed: &delayed},
		"warned": {Warnings: []produce.Warning{produce.WarnDelayIgnored}},
	} {
		if plainRun(&run) {
			t.Errorf("a run that is %s is not plain", name)
		}
	}
}

// TestPlaces: runs that overlap or leave a message out are a fault of ours, and no answer.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		runs []produce.Run
		ok   bool
	}{
		"one":      {[]produce.Run{{Count: 3}}, true},
		"two":      {[]produce.Run{{First: 1, Count: 2}, {Count: 1}}, true},
		"gap":      {[]produce.Run{{Count: 2}}, false},
		"overlap":  {[]produce.Run{{Count: 2}, {First: 1, Count: 1}}, false},
		"twice":    {[]produce.Run{{Count: 3}, {First: 2, Count: 1}}, false},
		"too far":  {[]produce.Run{{First: 1, Count: 3}}, false},
		"negative": {[]produce.Run{{First: -1, Count: 3}}, false},
	} {
		places, err := placesOf(produce.Answer{Runs: c.runs}, 3)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		for i := range places {
			if at := places[i]; at.run.First+at.k != i {
				t.Errorf("%s: message %d is answered as %d", name, i, at.run.First+at.k)
			}
		}
	}
}
