package segment_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestPrefetch: batches that lie together are read together, those far apart are not, and a damaged one costs
// itself.
func TestPrefetch(t *testing.T) {
	w := newWorld(t)
	var object []byte
	var refs []*meta.Ref
	add := func(body int) {
		enc := batch.NewEncoder(batch.Options{})
		if err := enc.Add(&batch.Record{Body: bytes.Repeat([]byte{byte(len(refs))}, body)}); err != nil {
			t.Fatal(err)
		}
		data, err := enc.Finish(nil, w.ids.Nonce())
		if err != nil {
			t.Fatal(err)
		}
		h, err := batch.ParseHeader(data)
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, &meta.Ref{
			Kind: meta.RefBatch, Pos: int64(len(object)), Len: h.Len(), Count: 1, Prefix: uint32(h.PrefixLen()), CRC: h.CRC, HasCRC: true,
		})
		object = append(object, data...)
	}
	for range 20 {
		add(100)
	}
	object = append(object, make([]byte, 200<<10)...) // a gap: nobody wants what lies in it
	for range 5 {
		add(300 << 10) // at most three in one read
	}
	key, err := w.blob.Create(t.Context(), blob.PrefixBatches, object)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refs {
		r.Object = key
	}
	refs[7].CRC++
	m := meter.New()
	log := w.log(w.meta, m.Blob(w.blob))
	log.Prefetch(t.Context(), refs)
	if got := m.Snapshot(); got.Ops("get object") != 3 && got.Ops("get object") != 4 {
		t.Errorf("the prefetch costs\n%s", got)
	}
	m2 := m.Snapshot().Ops("get object")
	for i, r := range refs {
		data, _, err := log.Data(t.Context(), r, 0, 1)
		if i == 7 {
			if !queue.Is(err, queue.KindCorrupt) {
				t.Errorf("the damaged one: %v", err)
			}
			continue
		}
		rd, err := batch.Open(data)
		var rec batch.Record
		if err != nil || !rd.Next(&rec) || rec.Body[0] != byte(i) {
			t.Errorf("%d is read as %v, %v", i, fmt.Sprintf("%.20v", rec.Body), err)
		}
	}
	// The damaged one is tried again, and of five large ones two pairs at most came together.
	if n := m.Snapshot().Ops("get object") - m2; n > 2 {
		t.Errorf("reading them after it took %d requests", n)
	}
	again := m.Snapshot().Ops("get object")
	log.Prefetch(t.Context(), refs[:5])
	if m.Snapshot().Ops("get object") != again {
		t.Error("what is cached was read again")
	}
	w.log(w.meta, w.blob).Prefetch(t.Context(), []*meta.Ref{{Kind: meta.RefBatch, Object: "batches/none", Len: 9}, {Kind: meta.RefBatch, Object: "batches/none", Pos: 9, Len: 9}})
}
