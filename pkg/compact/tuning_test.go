package compact_test

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

func TestParseTuning(t *testing.T) {
	want := compact.Tuning{TargetBytes: 4096, Age: time.Minute, Grace: 2 * time.Minute, UploadAge: time.Hour}
	if got, err := compact.ParseTuning("age=1m, grace=2m,target=4096,uploads=1h"); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := compact.ParseTuning(""); err != nil || got != (compact.Tuning{}) {
		t.Errorf("nothing is %+v, %v", got, err)
	}
	for text, part := range map[string]string{
		"age": "age", "age=x": "age", "age=2h": "age", "grace=1ms": "grace", "grace=2h": "grace", "target=0": "target", "target=x": "target", "haste=1": "haste",
	} {
		if _, err := compact.ParseTuning(text); queue.CodeOf(err) != queue.CodeInvalidArgument || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestHasty: a compactor that is tuned to haste does in minutes what takes an hour, and loses nothing.
func TestHasty(t *testing.T) {
	r := newRig(t)
	r.create("one", topics.Config{})
	r.fill("one", 300, 0)
	want := r.read("one")
	sys := r.hasty()
	r.pass(time.Minute)
	r.note("one")
	if got, err := sys.Run(t.Context()); err != nil || got.Pages == 0 || got.Deleted != 0 {
		t.Errorf("the first run did %+v, %v", got, err)
	}
	r.pass(time.Minute + time.Second)
	if got, err := sys.Run(t.Context()); err != nil || got.Deleted == 0 {
		t.Errorf("the second run did %+v, %v", got, err)
	}
	r.same("after it", r.read("one"), want)
	if err := r.sys.Topics.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		r.pass(time.Minute + time.Second)
		if _, err := sys.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.audit()
}
