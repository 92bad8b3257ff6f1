package meta_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	segID = queue.SegmentID("seg0000000000000")
	subID = queue.SubscriptionID("sub0000000000000")
	topID = queue.TopicID("top0000000000000")
)

// inlineRef is a ref as a small produce call makes it.
func inlineRef() meta.Ref {
	return meta.Ref{
		Kind: meta.RefBatch, Inline: true, ID: meta.RefID{1, 2, 3}, Object: "01j8zq4m0v7e2k9d3c5b6a1f", Len: 1100, Count: 10, Total: 10,
		Prefix: 180, Created: 1_785_000_000_000, Bytes: 1000,
	}
}

func fullRef() meta.Ref {
	return meta.Ref{
		Kind: meta.RefPayload, ID: meta.RefID{9, 8}, Object: "uploads/2026/x", Pos: 1 << 40, Len: 5 << 30, First: 1, Count: 2, Prefix: 3,
		CRC: 0xdeadbeef, HasCRC: true, Created: 1_785_000_000_000, Visible: 1_785_000_900_000, DefaultTTL: 60_000,
		MinExpires: 1_785_000_060_000, MaxExpires: 1_785_009_999_999, Bytes: 5 << 30, Slot: 65535, Key: []byte("k"), Headers: []byte{1, 0},
		Total: 70000, Hold: meta.RefID{7, 6},
	}
}

func golden() map[string]meta.Item {
	home := queue.DelayedID{Visible: 1_785_000_000_500, Entry: "ent0000000000000", Index: 3}
	load := meta.Load{Commits: 12}
	load.Buckets[0], load.Buckets[15] = 5, 7
	return map[string]meta.Item{
		"name":           {Version: 1, Record: &meta.Name{Name: "shop.orders", Topic: topID, Created: 1_785_000_000_000}},
		"topic":          {Version: 2, Record: &meta.Topic{ID: topID, State: meta.TopicOpen, Epoch: 7, Config: meta.TopicConfig{DefaultDelay: time.Second, MaxMessageBytes: 1 << 20, MinSegments: 2, Attributes: map[string]string{"b": "<2>", "a": "1"}}, Created: 5, Modified: 6}},
		"topic_switched": {Version: 2, Record: &meta.Topic{ID: topID, State: meta.TopicOpen, Config: meta.TopicConfig{MaxMessageBytes: 1 << 20, MinSegments: 2}, Created: 5, Modified: 6, DelayedUntil: 8, Switched: 6}},
		"segment":        {Version: 3, Record: &meta.Segment{Topic: topID, ID: segID, Range: queue.Ring(), Epoch: 3, Predecessors: []queue.SegmentID{"seg0000000000001"}, Created: 9}},
		"head_load": {Version: 4, Record: &meta.Head{
			Segment: segID, Sealed: true, Epoch: 3, Range: queue.SlotRange{Lo: 100, Hi: 65536}, Start: 2, Next: 112, Bytes: 1 << 33, TailFirst: 100,
			Tail: []meta.Ref{inlineRef(), fullRef()}, LastAppend: 1_785_000_000_001, Load: load,
			Producers: meta.Producers{}.With("p1", meta.ProducerState{Sequence: 9, First: 100, Count: 10, At: 1_785_000_000_000}).
				With("p0", meta.ProducerState{Sequence: 1}),
		}},
		"head_empty":   {Record: &meta.Head{Segment: segID, Range: queue.Ring()}},
		"page":         {Version: 5, Record: &meta.RefPage{Segment: segID, First: 1 << 40, Refs: []meta.Ref{fullRef(), inlineRef()}}},
		"payload":      {Record: &meta.Payload{ID: "01j8zq4m0v7e2k9d3c5b6a1f", Data: []byte("bytes\x00")}},
		"subscription": {Version: 6, Record: &meta.Subscription{Topic: topID, Name: "s", ID: subID, VisibilityTimeout: 30 * time.Second, MaxInFlight: 5, Backoff: []time.Duration{time.Second}, Cut: map[queue.SegmentID]queue.Offset{segID: 5}}},
		"cursor": {Record: &meta.Cursor{
			Subscription: subID, Segment: segID, Floor: 1000, Next: 1050,
			Claims: map[queue.ClaimID]meta.Claim{
				{2}: {ID: queue.ClaimID{2}, Attempt: 1, Parts: []meta.Part{{OffsetRange: meta.OffsetRange{Lo: 1000, Hi: 1010}, Expires: 1_785_000_030_000}, {OffsetRange: meta.OffsetRange{Lo: 1012, Hi: 1020}, Expires: 1_785_000_040_000}}},
				{1}: {ID: queue.ClaimID{1}, Attempt: 3, Parts: []meta.Part{{OffsetRange: meta.OffsetRange{Lo: 1030, Hi: 1050}, Expires: 1_785_000_031_000}}},
			},
			Done:    []meta.OffsetRange{{Lo: 1010, Hi: 1012}, {Lo: 1020, Hi: 1025}},
			Retries: []meta.Retry{{OffsetRange: meta.OffsetRange{Lo: 1025, Hi: 1030}, Attempts: 2, NotBefore: 1_785_000_001_000, Alone: true, Reason: "timeout"}},
		}},
		"delayed": {Version: 7, Record: &meta.Delayed{
			Topic: topID, Shard: 1, Visible: 1_785_000_900_000, ID: "ent0000000000001", Ref: fullRef(),
			Slots: []queue.Slot{1, 1, 500, 65535}, Sizes: []uint32{10, 0, 1 << 20, 7}, Gone: []uint32{0, 2}, Home: &home,
		}},
		"forward":   {Version: 8, Record: &meta.Forward{Topic: topID, Home: home, Visible: 1_785_000_900_000, Entry: "ent0000000000001"}},
		"attempt":   {Version: 9, Record: &meta.Attempt{Topic: topID, Token: "k-ab", Hash: "00ff", Sequence: 3, Nonce: [16]byte{1}, Created: 1, Deadline: 2, Delayed: []byte("[]"), Answer: []byte("{}"), Expires: 3}},
		"lease":     {Version: 10, Record: &meta.Lease{Name: "compact/" + string(segID), Owner: "o", Epoch: 4, TTL: time.Minute, Free: true, Value: 1 << 40}},
		"work":      {Version: 11, Record: &meta.Work{Due: 1_785_000_900_000, Segment: segID}},
		"drop":      {Version: 12, Record: &meta.Drop{Due: 1_785_000_900_000, ID: "drop000000000000", Intent: true, Runs: []meta.Run{{Object: "batches/x", Pos: 1, First: 2, Count: 3, Total: 4}, {Object: "01j8", Inline: true, Hold: "0a", Count: 1, Total: 1}}}},
		"again":     {Version: 12, Record: &meta.Drop{Due: 1_785_000_900_000, ID: "drop000000000000", Again: true, Runs: []meta.Run{{Object: "01j8", Inline: true}}}},
		"hold":      {Version: 13, Record: &meta.Hold{Object: "01j8", Inline: true, ID: "0a", Total: 2, Created: 1_785_000_900_000}},
		"freed":     {Version: 14, Record: &meta.Freed{Run: meta.Run{Object: "batches/x", Pos: 1, First: 2, Count: 3, Total: 4}}},
		"condemned": {Version: 15, Record: &meta.Condemned{Object: "batches/x", Expires: 1_785_000_900_000}},
		"watch":     {Version: 17, Record: &meta.Watch{Topic: topID, Name: "shop.orders", Pressed: 1_785_000_000_000, Put: 1_785_000_000_001}},
		"gauge":     {Version: 18, Record: &meta.Gauge{Topic: topID, Number: 3, At: 1_785_000_000_000, Segments: []meta.SegmentGauge{{ID: segID, Messages: 9, Bytes: 8, Commits: 7, Rates: [queue.RateWindowCount]meta.Rate{{Messages: 1.5, Bytes: 2e9, Commits: 0.25}}, Hot: true}}}},
		"event":     {Version: 19, Record: &meta.Event{At: 1_785_000_000_000, ID: "ev00000000000000", Topic: topID, Name: "shop.orders", Action: meta.ActionSplit, By: 4, Segments: []queue.SegmentID{segID}, Made: []queue.SegmentID{"seg0000000000001"}, Ranges: []queue.SlotRange{queue.Ring()}, Reason: "2-minute rate"}},
		"progress":  {Version: 16, Record: &meta.Progress{Name: "uploads", After: "uploads/x", Again: 5}},
		"removal":   {Version: 17, Record: &meta.Removal{Due: 1_785_000_900_000, Topic: topID, Name: "shop.orders", Subscription: subID, Intent: true, Dead: true, Found: true, After: segID}},
	}
}

// TestGolden holds that version 1 of the format is read for ever and written as it was. A file that is
// missing is written if SPILLWAY_WRITE_GOLDEN is set; none is ever overwritten: a changed file is a
// changed format, and needs a new version instead.
func TestGolden(t *testing.T) {
	for name, item := range golden() {
		t.Run(name, func(t *testing.T) {
			data, err := meta.Encode(nil, &item)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", "v1", name+".hex")
			if _, err := os.Stat(path); os.Getenv("SPILLWAY_WRITE_GOLDEN") != "" && err != nil {
				if err := os.WriteFile(path, []byte(hex.Dump(data)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := hex.Dump(data); got != string(want) {
				t.Errorf("encodes to\n%s\nwant\n%s", got, want)
			}
			item.Size = len(data)
			got, err := meta.Decode(item.Record.Key(), parseDump(t, string(want)))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, item) {
				t.Errorf("decodes to\n%+v\nwant\n%+v", got.Record, item.Record)
			}
		})
	}
}

// TestHeadTotals: heads that were written when they counted messages and bytes twice are read.
func TestHeadTotals(t *testing.T) {
	dump, err := os.ReadFile(filepath.Join("testdata", "v1", "head.hex"))
	if err != nil {
		t.Fatal(err)
	}
	want := golden()["head_load"]
	head, _ := want.Record.(*meta.Head)
	head.Load.Commits = 0
	data := parseDump(t, string(dump))
	want.Size = len(data)
	if got, err := meta.Decode(head.Key(), data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decodes to\n%+v, %v\nwant\n%+v", got.Record, err, head)
	}
}

// parseDump reads what hex.Dump writes.
func parseDump(t *testing.T, dump string) (data []byte) {
	t.Helper()
	for line := range strings.Lines(dump) {
		if len(line) < 60 {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(line[8:58], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, b...)
	}
	return data
}

func TestRefIsSmall(t *testing.T) {
	ref := inlineRef()
	if n := len(meta.AppendRef(nil, &ref)); n >= 80 {
		t.Errorf("an inline ref takes %d bytes", n)
	}
	for _, r := range []meta.Ref{inlineRef(), fullRef(), {}, {Key: []byte{}, Headers: []byte{}}} {
		got, err := meta.DecodeRef(meta.AppendRef(nil, &r))
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v comes back as %+v, %v", r, got, err)
		}
	}
	if _, err := meta.DecodeRef(append(meta.AppendRef(nil, &ref), 0)); !queue.Is(err, queue.KindCorrupt) {
		t.Errorf("a byte too many ended with %v", err)
	}
}

// TestCorruption flips every bit and cuts at every byte: never a panic, never a silent success.
func TestCorruption(t *testing.T) {
	for name, item := range golden() {
		t.Run(name, func(t *testing.T) {
			data, err := meta.Encode(nil, &item)
			if err != nil {
				t.Fatal(err)
			}
			key := item.Record.Key()
			corrupt := func(what string, key meta.Key, data []byte) {
				t.Helper()
				if _, err := meta.Decode(key, data); !queue.Is(err, queue.KindCorrupt) {
					t.Errorf("%s ended with %v", what, err)
				}
			}
			for i := range len(data) * 8 {
				bad := bytes.Clone(data)
				bad[i/8] ^= 1 << (i % 8)
				corrupt(fmt.Sprintf("bit %d", i), key, bad)
			}
			for i := range data {
				corrupt(fmt.Sprintf("cut at %d", i), key, data[:i])
			}
			corrupt("a byte too many", key, append(bytes.Clone(data), 0))
			corrupt("another sort key", meta.Key{PK: key.PK, SK: key.SK + "x"}, data)
			corrupt("another partition", meta.Key{PK: "z" + key.PK, SK: key.SK}, data)
			corrupt("no key", meta.Key{}, data)
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		record meta.Record
		kind   queue.Kind
	}{
		"too large":                 {&meta.Payload{ID: "x", Data: make([]byte, meta.MaxRecordBytes)}, queue.KindTooLarge},
		"segment id that is a path": {&meta.Cursor{Subscription: "a", Segment: "b/c"}, queue.KindInvalid},
	} {
		if _, err := meta.Encode(nil, &meta.Item{Record: tc.record}); !queue.Is(err, tc.kind) {
			t.Errorf("%s ended with %v", name, err)
		}
	}
}

// FuzzDecode holds that no bytes panic, and that what decodes encodes to something that decodes to the
// same. The checksum is put right first, or the fuzzer would never get past it.
func FuzzDecode(f *testing.F) {
	for _, item := range golden() {
		data, err := meta.Encode(nil, &item)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(item.Record.Key().PK, item.Record.Key().SK, data)
	}
	f.Fuzz(func(t *testing.T, pk, sk string, data []byte) {
		key := meta.Key{PK: pk, SK: sk}
		meta.FixChecksum(key, data)
		item, err := meta.Decode(key, data)
		if err != nil {
			if !queue.Is(err, queue.KindCorrupt) {
				t.Fatalf("kind of %v", err)
			}
			return
		}
		again, err := meta.Encode(nil, &item)
		if err != nil {
			return // too large, or an id with a slash
		}
		second, err := meta.Decode(key, again)
		if err != nil {
			t.Fatalf("%+v does not come back: %v", item.Record, err)
		}
		third, err := meta.Encode(nil, &second)
		if err != nil || !bytes.Equal(again, third) {
			t.Fatalf("%+v comes back as %+v (%v)", item.Record, second.Record, err)
		}
	})
}

func BenchmarkEncodeHead(b *testing.B) {
	head := &meta.Head{Segment: segID, Range: queue.Ring(), Next: 480}
	for i := range 48 {
		r := inlineRef()
		r.ID[5] = byte(i)
		head.Tail = append(head.Tail, r)
	}
	item := &meta.Item{Record: head}
	buf, err := meta.Encode(nil, item)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		b.ReportAllocs()
		for b.Loop() {
			buf, _ = meta.Encode(buf[:0], item)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(buf)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := meta.Decode(head.Key(), buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("append", func(b *testing.B) {
		op := meta.Append{Segment: segID, Refs: []meta.Ref{{Kind: meta.RefBatch, ID: meta.RefID{7}, Count: 10}}}
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := op.Change(item); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestPayloadIDs: an id tells its time, and what is no such id tells none.
func TestPayloadIDs(t *testing.T) {
	id := meta.PayloadID(1_785_000_000_000, "abc")
	if at, ok := meta.PayloadTime(id); !ok || at != 1_785_000_000_000 {
		t.Errorf("%s is of %d, %v", id, at, ok)
	}
	for _, id := range []string{"", "x", "0001", "zzzzzzzzzzzz-a", "-00000000001-a", "000000000001a"} {
		if at, ok := meta.PayloadTime(id); ok {
			t.Errorf("%q is of %d", id, at)
		}
	}
}
