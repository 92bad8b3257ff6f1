package meter_test

import (
	"encoding/json"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
)

func TestSnapshotIsAValue(t *testing.T) {
	m := meter.New()
	s := m.Meta(&canned{item: headItem(100), results: []meta.Result{headResult(100)}})
	get(s)
	first := m.Snapshot()
	get(s)
	apply(meta.Seal{Segment: segment})(s)
	second := m.Snapshot()
	if first.Calls() != 1 || second.Calls() != 3 || second.Ops("get head") != 2 {
		t.Errorf("first:\n%s\nsecond:\n%s", first, second)
	}
	wantRows(t, second.Sub(first), []meter.Row{
		{Op: "get head", Calls: 1, Ops: 1, Bytes: 100, ReadUnits: 1},
		{Op: "seal", Calls: 1, Ops: 1, Bytes: 100, WriteUnits: 1},
	})
	wantRows(t, second.Sub(second), nil)
}

func TestOpsByName(t *testing.T) {
	s := meter.Snapshot{Rows: []meter.Row{
		{Op: "append", Ops: 1}, {Op: "get head", Ops: 2}, {Op: "get page", Ops: 4}, {Op: "put page", Ops: 8},
	}}
	for name, want := range map[string]int64{"append": 1, "get head": 2, "get *": 6, "get": 0, "*": 15, "none": 0} {
		if got := s.Ops(name); got != want {
			t.Errorf("ops of %q: %d, want %d", name, got, want)
		}
	}
}

func TestCost(t *testing.T) {
	s := meter.Snapshot{Rows: []meter.Row{
		{Op: "append", WriteUnits: 2_000_000},
		{Op: "create object", Puts: 1_000_000},
		{Op: "get head", ReadUnits: 8_000_000},
		{Op: "get object", Gets: 10_000_000},
	}}
	want := meter.Cost{ReadUnits: 1, WriteUnits: 1.25, Gets: 4, Puts: 5, Total: 11.25}
	got := s.Cost(meter.USEast1())
	for _, d := range []float64{
		got.ReadUnits - want.ReadUnits, got.WriteUnits - want.WriteUnits, got.Gets - want.Gets,
		got.Puts - want.Puts, got.Total - want.Total,
	} {
		if math.Abs(d) > 1e-9 {
			t.Errorf("cost %+v, want %+v", got, want)
		}
	}
	one := meter.Row{Puts: 1}.Cost(meter.USEast1())
	if one.String() != "5.000 µ$ (reads 0.000, writes 0.000, gets 0.000, puts 5.000)" {
		t.Error(one)
	}
}

func TestSnapshotRenders(t *testing.T) {
	s := meter.Snapshot{Rows: []meter.Row{{Op: "append", Calls: 12, Ops: 12, Bytes: 3456, WriteUnits: 12}}}
	lines := strings.Split(strings.TrimRight(s.String(), "\n"), "\n")
	if len(lines) != 3 || len(lines[0]) != len(lines[1]) || len(lines[1]) != len(lines[2]) || !strings.Contains(lines[2], "total") {
		t.Errorf("not an aligned table of 3 lines:\n%s", s)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"rows":[{"op":"append","calls":12,"ops":12,"errors":0,"refusals":0,"bytes":3456,` +
		`"read_units":0,"write_units":12,"gets":0,"puts":0}]}`
	if string(text) != want {
		t.Errorf("JSON %s, want %s", text, want)
	}
}

func TestCountsAreNotLost(t *testing.T) {
	m := meter.New()
	s := m.Meta(&canned{item: headItem(100), results: []meta.Result{headResult(100)}})
	const workers, each = 8, 500
	ops := []meta.Op{
		meta.Seal{Segment: segment},
		meta.Trim{Segment: segment},
		meta.Append{Segment: segment},
		meta.Put{Record: &meta.Topic{ID: segment}},
		meta.Delete{Key: meta.HeadKey(segment), Kind: meta.KindHead},
	}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				apply(ops[i%len(ops)])(s)
				get(s)
				if i%50 == 0 {
					_ = m.Snapshot()
				}
			}
		})
	}
	wg.Wait()
	got := m.Snapshot()
	if got.Calls() != 2*workers*each || got.Ops("get head") != workers*each || got.Ops("trim") != workers*each/int64(len(ops)) {
		t.Errorf("counts were lost:\n%s", got)
	}
}
