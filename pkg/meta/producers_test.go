package meta_test

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestProducersModel holds a list of producers against a map, and that no list changes by what is made of it.
func TestProducersModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list meta.Producers
		model := make(map[string]meta.ProducerState)
		same := func(list meta.Producers) {
			t.Helper()
			if len(list) != len(model) || !slices.IsSortedFunc(list, func(a, b meta.Producer) int { return cmp.Compare(a.ID, b.ID) }) {
				t.Fatalf("%v is not %v in order", list, model)
			}
			for id, want := range model {
				if got, ok := list.Get(id); !ok || got != want {
					t.Fatalf("%q is %+v, want %+v", id, got, want)
				}
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			before, was := list, slices.Clone(list)
			id := rapid.StringMatching("[a-d]{1,2}").Draw(t, "id")
			if rapid.IntRange(0, 4).Draw(t, "op") == 0 {
				list = list.Without(func(p *meta.Producer) bool { return p.ID == id })
				delete(model, id)
			} else {
				state := meta.ProducerState{Sequence: rapid.Uint64().Draw(t, "sequence"), At: 7}
				list = list.With(id, state)
				model[id] = state
			}
			same(list)
			if !slices.Equal(before, was) {
				t.Fatalf("%v became %v", was, before)
			}
			if _, known := list.Get(id + "x"); known {
				t.Fatalf("%q is known", id+"x")
			}
		}
	})
}

// TestProducersOutOfOrder: whoever looks one up counts on the order, so a record without it is damaged.
func TestProducersOutOfOrder(t *testing.T) {
	head := &meta.Head{Segment: segID, Range: queue.Ring()}
	for name, list := range map[string]meta.Producers{"astray": {{ID: "p"}, {ID: "o"}}, "twice": {{ID: "p"}, {ID: "p"}}} {
		head.Producers = list
		data, err := meta.Encode(nil, &meta.Item{Record: head})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := meta.Decode(head.Key(), data); !queue.Is(err, queue.KindCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFrameSum holds the checksum of a frame to its definition in the format.
func TestFrameSum(t *testing.T) {
	for _, record := range []meta.Record{
		&meta.Payload{ID: "0000000000001-0123456789abcdef", Data: []byte("body")}, &meta.Name{Name: "shop.orders.eu"}, &meta.Name{Name: "ü"},
	} {
		data, err := meta.Encode(nil, &meta.Item{Record: record, Version: 9})
		if err != nil {
			t.Fatal(err)
		}
		key := record.Key()
		all := append([]byte(key.PK+"\x00"+key.SK), data[:10]...)
		want := crc32.Checksum(append(all, data[14:]...), crc32.MakeTable(crc32.Castagnoli))
		if got := binary.BigEndian.Uint32(data[10:]); got != want {
			t.Errorf("%v: checksum %08x, want %08x", key, got, want)
		}
	}
}
