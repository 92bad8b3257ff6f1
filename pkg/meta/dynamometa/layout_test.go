package dynamometa

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// render writes attributes in a fixed order.
func render(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return fmt.Sprintf("%q", v.Value)
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return "0x" + hex.EncodeToString(v.Value)
	case *types.AttributeValueMemberL:
		var parts []string
		for _, e := range v.Value {
			parts = append(parts, render(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case *types.AttributeValueMemberM:
		return "{" + strings.Join(renderAttrs(v.Value), " ") + "}"
	}
	return "?"
}

func renderAttrs(raw attrs) []string {
	var parts []string
	for name, v := range raw {
		parts = append(parts, name+"="+render(v))
	}
	slices.Sort(parts)
	return parts
}

func sampleHead() *meta.Head {
	h := &meta.Head{
		Segment: "seg", Sealed: true, Epoch: 3, Range: queue.SlotRange{Lo: 1, Hi: 9}, Start: 2, Next: 12, Bytes: 77, TailFirst: 7,
		Tail:       []meta.Ref{{Kind: meta.RefBatch, ID: meta.RefID{1}, Object: "o", Len: 4, Count: 5, Created: 6, Bytes: 7}},
		LastAppend: 5000, Producers: meta.Producers{{ID: "p", ProducerState: meta.ProducerState{Sequence: 258, First: 7, Count: 5, At: 4999}}},
		Load: meta.Load{Commits: 12},
	}
	h.Load.Buckets[15] = 4
	return h
}

func sampleCursor() *meta.Cursor {
	part := func(lo, hi queue.Offset, at queue.Millis) meta.Part {
		return meta.Part{OffsetRange: span{Lo: lo, Hi: hi}, Expires: at}
	}
	one, two := queue.ClaimID{1}, queue.ClaimID{2}
	return &meta.Cursor{
		Subscription: "sub", Segment: "seg", Floor: 3, Next: 30,
		Claims: map[queue.ClaimID]meta.Claim{
			one: {ID: one, Attempt: 1, Parts: []meta.Part{part(3, 10, 900)}},
			two: {ID: two, Attempt: 2, Parts: []meta.Part{part(12, 14, 901), part(14, 15, 902)}},
		},
		Done:    []span{{Lo: 10, Hi: 12}},
		Retries: []meta.Retry{{OffsetRange: span{Lo: 15, Hi: 30}, Attempts: 2, NotBefore: 800, Alone: true, Reason: "why"}},
	}
}

// TestGolden pins the layouts h1 and c1, and when an item expires. A table holds these for ever: whoever
// changes one adds a layout.
func TestGolden(t *testing.T) {
	for _, tc := range []struct {
		name string
		item meta.Item
		want string
	}{
		{"head", meta.Item{Record: sampleHead(), Version: 258}, `b15=4 e=3 hi=9 k="h1" la=5000 lc=12 lo=1 n=12 ` +
			`p={p=0x0000000000000102058e4e} pf={p=7} pk="s/seg" s=1 sk="head" st=2 ` +
			`t=[0x010001000000000000000000000000000000016f04050c07] tf=7 v=0x0000000000000102 y=77`},
		{"cursor", meta.Item{Record: sampleCursor(), Version: 1}, `c={010000000000000000000000={a=1 h=10 l=3 s=0 x=900} ` +
			`020000000000000000000000={a=2 p=0x0c028a0e0e018c0e s=0}} d={10=12} f=3 k="c1" n=30 pk="c/sub/seg" ` +
			`r={15=0x0f05c00c776879} sk="cursor" v=0x0000000000000001`},
	} {
		raw, err := encodeItem(&tc.item)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(renderAttrs(raw), " "); got != tc.want {
			t.Errorf("%s is\n%s, want\n%s", tc.name, got, tc.want)
		}
		got, err := decodeItem(tc.item.Record.Key(), raw)
		if err != nil || fmt.Sprintf("%+v", got.item.Record) != fmt.Sprintf("%+v", tc.item.Record) || got.item.Version != tc.item.Version {
			t.Errorf("%s is read as %+v, %v", tc.name, got.item, err)
		}
	}
	raw, err := encodeItem(&meta.Item{Record: &meta.Attempt{Topic: "t", Token: "x", Expires: 5001}})
	if err != nil || render(raw[attrTTL]) != "6" {
		t.Errorf("an attempt's item is %v, %v", raw, err)
	}
}

// TestDamagedItems takes each attribute away, or gives it another form: never a record, never a panic.
func TestDamagedItems(t *testing.T) {
	optional := map[string]bool{attrPK: true, attrSK: true, headSealed: true, headBytes: true, headCommits: true, "b15": true}
	for _, r := range []meta.Record{sampleHead(), sampleCursor(), &meta.Name{Name: "n"}} {
		raw, err := encodeItem(&meta.Item{Record: r, Version: 1})
		if err != nil {
			t.Fatal(err)
		}
		for name := range raw {
			for what, v := range map[string]types.AttributeValue{
				"gone": nil, "a flag": &types.AttributeValueMemberBOOL{}, "negative": number(-1), "no number": &types.AttributeValueMemberN{Value: "1e3"},
				"text": text("x"), "short": binaryOf([]byte{0x80}), "a map": mapOf(attrs{"x": binaryOf([]byte{0x80})}),
				"a list": &types.AttributeValueMemberL{Value: []types.AttributeValue{binaryOf(nil)}},
			} {
				bad := make(attrs)
				for k, v := range raw {
					bad[k] = v
				}
				bad[name] = v
				if v == nil {
					delete(bad, name)
				}
				_, err := decodeItem(r.Key(), bad)
				negative := name == headLast && what == "negative" // a time may be
				fits := optional[name] || negative || r.Kind() == meta.KindName && name == attrVersion
				if !fits && !queue.Is(err, queue.KindCorrupt) || err != nil && !queue.Is(err, queue.KindCorrupt) {
					t.Errorf("%s with %q %s ended with %v", r.Kind(), name, what, err)
				}
			}
		}
	}
}

// FuzzBinary decodes what stands in binary attributes.
func FuzzBinary(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 1, 2, 5, 0x8e, 0x4e})
	f.Add([]byte{0x0c, 2, 0x8a, 0x0e})
	f.Add([]byte{0x0f, 5, 0xc0, 0x0c, 'w'})
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := decodeProducer(binaryOf(b)); ok {
			if got, ok := decodeProducer(producerAttr(p)); !ok || got != p {
				t.Errorf("producer %+v came back as %+v", p, got)
			}
		}
		c := sampleCursor()
		raw, err := encodeItem(&meta.Item{Record: c})
		if err != nil {
			t.Fatal(err)
		}
		objectOf(raw, curRetries)["15"] = binaryOf(b)
		objectOf(raw, curClaims)["020000000000000000000000"].(*types.AttributeValueMemberM).Value[claimParts] = binaryOf(b)
		if _, err := decodeItem(c.Key(), raw); err != nil && !queue.Is(err, queue.KindCorrupt) {
			t.Error(err)
		}
	})
}

func TestBelow(t *testing.T) {
	for _, tc := range [][2]string{{"b", "a\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF"}, {"a\x01", "a"}, {"a\uE000", "a\uD7FF\U0010FFFF\U0010FFFF\U0010FFFF\U0010FFFF"}} {
		if got := below(tc[0]); got != tc[1] || got >= tc[0] {
			t.Errorf("below %q is %q", tc[0], got)
		}
	}
}
