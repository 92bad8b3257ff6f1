package batch_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// update writes the golden files anew: go test ./pkg/batch -run Golden -update. A file of a released
// version is never changed: stored batches stay as they are. Where only the compressor's output has
// changed, keep the old file under a name of its own (v1_zstd_<library version>.batch): every
// testdata/v1_*.batch must decode for ever.
var update = flag.Bool("update", false, "write the golden files of testdata anew")

// goldenRecords use every field of the format, in an order that the encoder has to sort.
func goldenRecords(t testing.TB) []batch.Record {
	t.Helper()
	headers, err := batch.MakeHeaders(map[string]string{"content-type": "text/plain", "trace": "é1"})
	if err != nil {
		t.Fatal(err)
	}
	return []batch.Record{
		{Slot: 40_000, Key: []byte("k2"), Body: []byte("second of slot range, short")},
		{Slot: 7, Key: []byte("k1"), Headers: headers, Body: bytes.Repeat([]byte("spillway "), 20)},
		{Slot: 7, Body: nil},
		{Slot: 65_535, Body: []byte("all"), Delay: 90 * time.Second, HasDelay: true, TTL: time.Hour, CreatedDelta: 128 * time.Millisecond, DedupID: []byte("order-1")},
		{Slot: 0, Body: []byte("delay of zero"), HasDelay: true},
		{Slot: 40_000, Key: []byte("k2"), Body: bytes.Repeat([]byte("z"), 40), TTL: time.Millisecond},
	}
}

func TestGolden(t *testing.T) {
	for name, data := range smallBatches(t) {
		file := filepath.Join("testdata", "v1_"+name+".batch")
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
			t.Errorf("%s: the encoding has changed; see -update in golden_test.go before going on", file)
		}
	}
}

func TestGoldenFilesDecode(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "v1_*.batch"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.Verify(data); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		r, err := batch.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		mustEqual(t, readAll(t, r), sorted(goldenRecords(t)))
	}
}

// documented is the part of docs/FORMAT.md between the comments "what" and "end of what".
func documented(t *testing.T, what string) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join("..", "..", "docs", "FORMAT.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(doc), "<!-- "+what+" -->")
	part, _, closed := strings.Cut(part, "<!-- end of "+what+" -->")
	if !ok || !closed {
		t.Fatalf("docs/FORMAT.md has lost its %s", what)
	}
	return part
}

func TestBatchVector(t *testing.T) {
	var want []byte
	for line := range strings.Lines(documented(t, "batch vector")) {
		code, _, _ := strings.Cut(line, "   ") // the comment stands behind several spaces
		b, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(code), " ", ""))
		if err == nil {
			want = append(want, b...)
		}
	}
	headers, err := batch.MakeHeaders(map[string]string{"a": "1"})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("k1")
	got := encode(t, batch.Options{}, []batch.Record{{
		Slot: queue.SlotOf(key), Key: key, Headers: headers, Body: []byte("hello"),
		Delay: 1500 * time.Millisecond, HasDelay: true,
	}})
	if !bytes.Equal(got, want) {
		t.Errorf("encoded %x, documented %x", got, want)
	}
}

// TestSlotVectors holds queue.SlotOf to the table of docs/FORMAT.md: other languages implement it
// from there.
func TestSlotVectors(t *testing.T) {
	rows := 0
	for line := range strings.Lines(documented(t, "slot vectors")) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 || !strings.Contains(cells[1], `"`) {
			continue
		}
		key, err := strconv.Unquote(strings.Trim(strings.TrimSpace(cells[1]), "`"))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		want, err := strconv.ParseUint(strings.TrimSpace(cells[2]), 10, 16)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := queue.SlotOf([]byte(key)); uint64(got) != want {
			t.Errorf("SlotOf(%q) = %d, want %d", key, got, want)
		}
		rows++
	}
	if rows < 10 {
		t.Errorf("%d slot vectors read", rows)
	}
}
