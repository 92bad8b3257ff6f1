package compact

import (
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Tuning are the measures of a compactor; zero fields take the defaults.
//
// A shorter Age or Grace is for deployments that are being tried, not for ones that hold anything: readers
// may go by a page for queue.PageTTL and by a URL for queue.PresignTTL, and what they read is deleted Grace
// after it was replaced.
type Tuning struct {
	// TargetBytes is the size from which on an object is large enough; 0 means 8 MiB. A group's
	// object is at most one batch larger.
	TargetBytes int64
	// Age is how old a page is at least before it is compacted, at most queue.CompactAge, the default;
	// Grace how long what was dropped is kept, at most queue.GracePeriod, the default.
	Age, Grace time.Duration
	// UploadAge is how long an upload may wait to be submitted; 0 means a day.
	UploadAge time.Duration
}

// ParseTuning reads "age=1m,grace=2m,target=4096,uploads=1h", each part of which may be absent. Invalid,
// naming the part, for anything else.
func ParseTuning(s string) (t Tuning, err error) {
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "":
		case "target":
			if t.TargetBytes, err = strconv.ParseInt(value, 10, 64); err != nil || t.TargetBytes < 1 {
				return t, queue.Invalid("compact target", nil, "must be a number of bytes")
			}
		case "age":
			t.Age, err = duration(name, value, queue.CompactAge)
		case "grace":
			t.Grace, err = duration(name, value, queue.GracePeriod)
		case "uploads":
			t.UploadAge, err = duration(name, value, queue.MaxTTL)
		default:
			return t, queue.Invalid("compact", nil, "has no part %q: age, grace, target and uploads", name)
		}
		if err != nil {
			return t, err
		}
	}
	return t, nil
}

func duration(name, value string, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d < time.Second || d > most {
		return 0, queue.Invalid("compact "+name, most.String(), "must be a duration from 1s to %s", most)
	}
	return d, nil
}

func (t Tuning) defaults() Tuning {
	if t.TargetBytes == 0 {
		t.TargetBytes = defaultTarget
	}
	if t.Age == 0 {
		t.Age = queue.CompactAge
	}
	if t.Grace == 0 {
		t.Grace = queue.GracePeriod
	}
	if t.UploadAge == 0 {
		t.UploadAge = 24 * time.Hour
	}
	return t
}

// horizon is up to when work is due at now. The notes say when by the defaults.
func (t Tuning) horizon(now queue.Millis) queue.Millis { return now.Add(queue.GracePeriod - t.Grace) }
