package wire_test

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"testing/iotest"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// update writes the golden file anew: go test ./pkg/httpapi/wire -run Golden -update. The frames of a
// released version never change: clients of that version read them.
var update = flag.Bool("update", false, "write the golden file of testdata anew")

const (
	segment = queue.SegmentID("0123456789abcdef")
	created = queue.Millis(1_790_000_000_000)
)

func headers(t testing.TB, m map[string]string) batch.Headers {
	t.Helper()
	h, err := batch.MakeHeaders(m)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func encode(t testing.TB, codec batch.Codec, records ...batch.Record) []byte {
	t.Helper()
	e := batch.NewEncoder(batch.Options{Codec: codec})
	for i := range records {
		if err := e.Add(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	data, err := e.Finish(nil, [batch.NonceSize]byte{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func records(t testing.TB) []batch.Record {
	return []batch.Record{
		{Slot: 1, Key: []byte("a"), Body: []byte("first")},
		{Slot: 2, Key: []byte{0xff, 0}, Body: bytes.Repeat([]byte("ab"), 50), TTL: time.Minute, Headers: headers(t, map[string]string{"kind": "new", "n": "1"})},
		{Slot: 3, Body: []byte("third"), CreatedDelta: 5 * time.Millisecond, DedupID: []byte("d-1")},
	}
}

// frames are one of each sort.
func frames(t testing.TB) []*wire.Frame {
	data := encode(t, batch.CodecNone, records(t)...)
	index, err := batch.OpenIndex(data)
	if err != nil {
		t.Fatal(err)
	}
	claim := queue.ClaimID{9, 8, 7}
	return []*wire.Frame{
		{
			Kind: wire.FrameBatch, Segment: segment, Offset: 17, Count: 3, Claimed: true, Claim: claim, Attempt: 2,
			ClaimExpires: created + 30_000, Created: created, DefaultTTL: 3_600_000, Payload: data,
			Headers: headers(t, map[string]string{"kind": "dead"}),
		},
		{
			Kind: wire.FrameBatch, Segment: segment, Offset: 20, Count: 2, First: 1, Claimed: true, Claim: claim, Attempt: 1,
			ClaimExpires: created + 30_000, Created: created, Visible: created + 99, OneExpiry: true, Expires: created + 500, Payload: data[:index.Header().PrefixLen()],
			Reference: &wire.FrameReference{URL: "https://example.com/o?sig=1", Headers: headers(t, map[string]string{"x": "y"}), Expires: created + 900_000, Pos: 64, Len: int64(len(data))},
		},
		{
			Kind: wire.FramePayload, Segment: segment, Offset: 22, Count: 1, Created: created, Expires: created + 1000,
			Slot: 77, Key: []byte("k"), Payload: []byte("123456789"), CRC: 0xe3069283, HasCRC: true,
		},
		{
			Kind: wire.FramePayload, Segment: segment, Offset: 23, Count: 1, Created: created,
			Reference: &wire.FrameReference{URL: "https://example.com/p", Expires: created + 900_000, Len: 5 << 20},
		},
	}
}

func stream(frames []*wire.Frame) []byte {
	var b []byte
	for _, f := range frames {
		b = append(f.AppendHeader(b), f.Payload...)
	}
	return b
}

func readAll(r io.Reader) ([]*wire.Frame, error) {
	var out []*wire.Frame
	for d := wire.NewFrameReader(r); ; {
		f, err := d.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, f)
	}
}

func TestFramesRoundTrip(t *testing.T) {
	want := frames(t)
	got, err := readAll(iotest.OneByteReader(bytes.NewReader(stream(want))))
	if err != nil {
		t.Fatal(err)
	}
	want[3].Payload = []byte{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFramesGolden(t *testing.T) {
	file := filepath.Join("testdata", "v1.frames")
	data := stream(frames(t))
	if *update {
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(data, want) {
		t.Error("the encoding has changed; see -update before going on")
	}
}

// TestFramesCutOff cuts a stream at every byte: between frames that is the end, inside one an error.
func TestFramesCutOff(t *testing.T) {
	all := frames(t)
	data := stream(all)
	ends := map[int]bool{0: true}
	for i := range all {
		ends[len(stream(all[:i+1]))] = true
	}
	for n := range len(data) + 1 {
		_, err := readAll(bytes.NewReader(data[:n]))
		if ends[n] != (err == nil) {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if err != nil && !queue.Is(err, queue.KindUnavailable) {
			t.Fatalf("cut at %d: kind of %v", n, err)
		}
	}
}

func TestFrameMessages(t *testing.T) {
	all := frames(t)
	var got []wire.Delivered
	for _, f := range all {
		for d, err := range f.Messages() {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, d)
		}
	}
	if len(got) != 7 {
		t.Fatalf("%d messages, want 7", len(got))
	}
	second, third := got[1], got[2]
	if second.ID.String() != string(segment)+"-18" || string(second.Key) != "\xff\x00" || len(second.Body) != 100 {
		t.Errorf("second: %+v", second)
	}
	if kind, _ := second.Headers.Get("kind"); kind != "dead" {
		t.Errorf("the frame's headers are not laid over the record's: kind is %q", kind)
	}
	if n, _ := second.Headers.Get("n"); n != "1" {
		t.Errorf("the record's own headers are lost: n is %q", n)
	}
	if second.Expires != created+60_000 || got[0].Expires != created+3_600_000 {
		t.Errorf("expiry: %v and %v", second.Expires, got[0].Expires)
	}
	if third.Created != created+5 || third.Visible != created+5 || string(third.DedupID) != "d-1" {
		t.Errorf("third: %+v", third)
	}
	if second.Receipt != (queue.Receipt{Segment: segment, Claim: queue.ClaimID{9, 8, 7}, Lo: 18, Hi: 19}) || second.Attempt != 2 {
		t.Errorf("receipt %+v, attempt %d", second.Receipt, second.Attempt)
	}
	if whole := all[0].Receipt(); whole.Lo != 17 || whole.Hi != 20 {
		t.Errorf("receipt of the frame: %+v", whole)
	}
	byReference := got[3]
	if byReference.Record != 1 || byReference.Body != nil || byReference.BodyLen != 100 || byReference.Visible != created+99 || byReference.Expires != created+500 {
		t.Errorf("by reference: %+v", byReference)
	}
	if payload := got[5]; string(payload.Body) != "123456789" || payload.Receipt.Claim != (queue.ClaimID{}) || payload.Expires != created+1000 {
		t.Errorf("payload: %+v", payload)
	}
	if payload := got[6]; payload.BodyLen != 5<<20 || payload.Body != nil {
		t.Errorf("payload by reference: %+v", payload)
	}
}

// TestDamagedNeighbour: one damaged body does not take the messages after it along.
func TestDamagedNeighbour(t *testing.T) {
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
		rs := records(t)
		data := encode(t, codec, rs...)
		at := bytes.LastIndex(data, []byte("third"))
		if codec == batch.CodecZstd {
			at = len(data) - 1
		}
		data[at] ^= 1
		f := frames(t)[0]
		f.Payload = data
		var ok, bad int
		for d, err := range f.Messages() {
			if d.ID.Segment != segment {
				t.Fatalf("%v: no id: %v", codec, err)
			}
			if err == nil {
				ok++
			} else if bad++; !queue.Is(err, queue.KindCorrupt) || d.Body != nil {
				t.Errorf("%v: %v with body %q", codec, err, d.Body)
			}
		}
		if ok+bad != 3 || bad == 0 || codec == batch.CodecNone && ok != 2 {
			t.Errorf("%v: %d good, %d damaged", codec, ok, bad)
		}
	}
}

func TestFrameLimits(t *testing.T) {
	for name, change := range map[string]func(*wire.Frame){
		"no such kind":        func(f *wire.Frame) { f.Kind = 3 },
		"no messages":         func(f *wire.Frame) { f.Count = 0 },
		"too many messages":   func(f *wire.Frame) { f.Count = queue.MaxBatchRecords + 1 },
		"offset overflows":    func(f *wire.Frame) { f.Offset = 1<<64 - 1 },
		"segment id":          func(f *wire.Frame) { f.Segment = "no" },
		"negative time":       func(f *wire.Frame) { f.Created = -1 },
		"ttl overflows":       func(f *wire.Frame) { f.DefaultTTL = 1 << 62 },
		"record out of range": func(f *wire.Frame) { f.First = 1 << 31 },
		"empty URL":           func(f *wire.Frame) { f.Reference = &wire.FrameReference{} },
		"negative span":       func(f *wire.Frame) { f.Reference = &wire.FrameReference{URL: "u", Len: -1} },
		"key too long":        func(f *wire.Frame) { f.Key = make([]byte, queue.MaxKeyBytes+1) },
	} {
		f := frames(t)[0]
		change(f)
		if _, err := readAll(bytes.NewReader(stream([]*wire.Frame{f}))); !queue.Is(err, queue.KindCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	huge := frames(t)[0].AppendHeader(nil)
	for i := range 8 {
		huge[len(huge)-1-i] = 0x7f
	}
	if _, err := readAll(bytes.NewReader(huge)); !queue.Is(err, queue.KindCorrupt) {
		t.Errorf("a payload length beyond all bounds: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(stream(frames(f)))
	for _, frame := range frames(f) {
		f.Add(stream([]*wire.Frame{frame}))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readAll(bytes.NewReader(data))
		if err != nil && !queue.Is(err, queue.KindCorrupt) && !queue.Is(err, queue.KindUnavailable) {
			t.Errorf("kind of %v", err)
		}
		for _, frame := range got {
			n := 0
			frame.Messages()(func(wire.Delivered, error) bool {
				n++
				return true
			})
			if n > frame.Count {
				t.Errorf("%d messages in a frame of %d", n, frame.Count)
			}
		}
		if again, err := readAll(bytes.NewReader(stream(got))); err != nil || len(again) != len(got) {
			t.Errorf("what was read does not read again: %v", err)
		}
	})
}
