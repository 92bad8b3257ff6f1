package seaweedfs

import (
	"strings"
	"testing"
)

// TestWire: what is written by hand is read back by field number, and what the broker answers is understood.
func TestWire(t *testing.T) {
	partition := frame(nil).number(1, 2520).number(3, 630)
	answer := frame(nil)
	for _, leader := range []string{"a:1", "b:2"} {
		answer = answer.field(2, frame(nil).field(1, partition).field(2, []byte(leader)))
	}
	all, err := assignments(answer)
	if err != nil || len(all) != 2 || string(all[1].leader) != "b:2" || string(all[0].partition) != string(partition) {
		t.Fatalf("%q, %v", all, err)
	}
	// DataMessage is field 2 of both a publish and a delivery.
	m, ok, err := received(data([]byte("k"), []byte("body"), 1<<60))
	if err != nil || !ok || string(m.key) != "k" || string(m.value) != "body" || m.nanoseconds != 1<<60 {
		t.Fatalf("%+v, %t, %v", m, ok, err)
	}
	if _, ok, err := received(frame(nil).field(1, frame(nil).number(2, 1))); ok || err != nil {
		t.Errorf("an end of a stream is taken for a message, or an error: %t, %v", ok, err)
	}
	if _, _, err := received(frame(nil).field(1, frame(nil).field(1, []byte("gone")))); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("an error of the stream: %v", err)
	}
	if err := published(frame(nil).number(1, 5)); err != nil {
		t.Error(err)
	}
	if err := published(frame(nil).field(2, []byte("no leader")).number(4, 3)); err == nil || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("a refusal: %v", err)
	}
	for name, broken := range map[string]frame{"a cut field": answer[:len(answer)-1], "a cut tag": {0x80}} {
		if _, err := assignments(broken); err == nil {
			t.Errorf("%s is decoded", name)
		}
	}
}
