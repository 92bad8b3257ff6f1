package batch_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestHeadersProperty(t *testing.T) {
	gen := rapid.MapOfN(rapid.StringMatching(`[a-zA-Zé-]{1,5}`), rapid.String(), 0, 12)
	rapid.Check(t, func(t *rapid.T) {
		m, extra := gen.Draw(t, "headers"), gen.Draw(t, "extra")
		h, err := batch.MakeHeaders(m)
		if err != nil {
			t.Fatalf("MakeHeaders: %v", err)
		}
		again, _ := batch.AppendHeaders([]byte("x"), maps.Clone(m))
		if err := h.Validate(); err != nil || !bytes.Equal(h, again[1:]) {
			t.Fatalf("Validate: %v; encodings %q, %q", err, h, again)
		}
		previous := ""
		seen := 0
		for name, value := range h.All() {
			if m[name] != value || name <= previous {
				t.Fatalf("%q=%q after %q", name, value, previous)
			}
			if v, ok := h.Get(name); !ok || v != value {
				t.Fatalf("Get(%q) = %q, %v", name, v, ok)
			}
			previous = name
			seen++
		}
		if seen != len(m) || !maps.Equal(h.Map(), m) {
			t.Fatalf("map %v, want %v", h.Map(), m)
		}
		if _, ok := h.Get("no such"); ok {
			t.Fatalf("Get finds what is not there")
		}
		want := maps.Clone(m)
		if want == nil {
			want = map[string]string{}
		}
		maps.Copy(want, extra)
		before := bytes.Clone(h)
		merged := h.Merge(extra)
		if !maps.Equal(merged.Map(), want) || merged.Validate() != nil || !bytes.Equal(h, before) {
			t.Fatalf("merged %v, want %v", merged.Map(), want)
		}
	})
}

func TestHeadersValidate(t *testing.T) {
	pair := func(name, value string) string {
		return string(uv(uint64(len(name)))) + name + string(uv(uint64(len(value)))) + value
	}
	many := ""
	for i := range queue.MaxHeaders + 1 {
		many += pair(string(rune('A'+i)), "")
	}
	cases := []struct {
		name string
		h    string
		ok   bool
	}{
		{"none", "", true},
		{"one", pair("a", "b"), true},
		{"empty value", pair("a", ""), true},
		{"control in value", pair("a", "x\ny"), true},
		{"empty name", pair("", "b"), false},
		{"control in name", pair("a\n", "b"), false},
		{"C1 control in name", pair("a\u0085", "b"), false},
		{"name not UTF-8", pair("a\xff", "b"), false},
		{"value not UTF-8", pair("a", "\xff"), false},
		{"long name", pair(strings.Repeat("n", queue.MaxHeaderNameBytes+1), ""), false},
		{"longest name", pair(strings.Repeat("n", queue.MaxHeaderNameBytes), ""), true},
		{"unsorted", pair("b", "") + pair("a", ""), false},
		{"twice", pair("a", "1") + pair("a", "2"), false},
		{"too many", many, false},
		{"largest", pair("a", strings.Repeat("v", queue.MaxHeadersBytes-1)), true},
		{"too large", pair("a", strings.Repeat("v", queue.MaxHeadersBytes)), false},
		{"value missing", "\x01a", false},
		{"value cut off", "\x01a\x02b", false},
		{"name cut off", "\x05a", false},
		{"long varint", "\x81\x00a\x00", false},
		{"endless varint", strings.Repeat("\xff", 20), false},
		{"trailing byte", pair("a", "b") + "\x01", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := batch.Headers(c.h).Validate()
			if (err == nil) != c.ok || err != nil && !queue.Is(err, queue.KindInvalid) {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}

func TestMakeHeadersRefuses(t *testing.T) {
	out, err := batch.AppendHeaders([]byte("x"), map[string]string{"": "v"})
	if !queue.Is(err, queue.KindInvalid) || string(out) != "x" {
		t.Errorf("%q, %v", out, err)
	}
	if h, err := batch.MakeHeaders(nil); h != nil || err != nil || h.Map() != nil {
		t.Errorf("no headers: %v, %v", h, err)
	}
}
