//go:build !race

package strictjson_test

import (
	"strings"
	"testing"
)

// TestAllocations: text costs its own length and no more, with escapes or without; names cost nothing.
func TestAllocations(t *testing.T) {
	d := decoder()
	for name, body := range map[string]string{
		"plain": strings.Repeat("x", 4000), "escaped": strings.Repeat(`{\"a\":\"\\\"é\u00e9`, 200),
	} {
		data := []byte(`{"text":"` + body + `"}`)
		var v outer
		if err := d.Decode(data, &v); err != nil {
			t.Fatal(err)
		}
		if len(v.Text) == 0 || cap(v.Text) > len(body)+len(body)/4 {
			t.Errorf("%s: %d bytes in JSON became %d in room for %d", name, len(body), len(v.Text), cap(v.Text))
		}
		// The text, and what Decode itself needs.
		if got := testing.AllocsPerRun(50, func() {
			v.Text = nil
			if err := d.Decode(data, &v); err != nil {
				t.Error(err)
			}
		}); got > 4 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
