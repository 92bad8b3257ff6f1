package meta_test

import (
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
)

func TestOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		op   meta.Op
		want bool
	}{
		"append":                   {meta.Append{}, true},
		"append of a producer":     {meta.Append{Producer: &meta.Sequence{ID: "p", Number: 1}}, false},
		"new delayed entry":        {meta.Put{Record: &meta.Delayed{}, If: meta.Absent()}, true},
		"changed delayed entry":    {meta.Put{Record: &meta.Delayed{}, If: meta.At(1)}, false},
		"intent of a merge":        {meta.Put{Record: &meta.Drop{Intent: true}, If: meta.Absent()}, true},
		"intent, taken off":        {meta.Put{Record: &meta.Drop{}, If: meta.At(1)}, false},
		"intent to make a topic":   {meta.Put{Record: &meta.Removal{Intent: true}, If: meta.Absent()}, true},
		"record that is kept":      {meta.Put{Record: &meta.Topic{}, If: meta.Absent()}, false},
		"deletion of what is used": {meta.Delete{}, false},
	} {
		if got := meta.Once(tc.op); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
