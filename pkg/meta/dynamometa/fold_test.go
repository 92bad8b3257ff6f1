package dynamometa

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestFoldWithoutRoom: a fold that cannot clear all litter at once changes nothing that the cursor says: of what is
// joined, no entry goes before the one that then stands for it.
func TestFoldWithoutRoom(t *testing.T) {
	const acks = 2 * maxFold
	key := meta.CursorKey("0000000000000000", "1111111111111111")
	for range 100 { // the entries come in any order
		raw := keyAttrs(key)
		raw[attrVersion] = versionAttr(0)
		encodeCursor(raw, &meta.Cursor{Subscription: "0000000000000000", Segment: "1111111111111111", Next: acks + 2})
		done := objectOf(raw, curDone)
		for off := queue.Offset(1); off <= acks; off++ { // 0 is not done, so the floor stays
			done[offsetKey(off)] = number(off + 1)
		}
		before, err := decodeItem(key, raw)
		if err != nil {
			t.Fatal(err)
		}
		// What is joined is one entry, and the floor stays.
		if e := foldPlan(before); len(e.remove) == 0 || len(e.set) != 1 {
			t.Fatalf("it drops %d entries, and says in their place: %v", len(e.remove), e.set)
		}
	}
}
