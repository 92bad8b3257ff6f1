package queue_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestWhole(t *testing.T) {
	for _, c := range []struct {
		n     int64
		limit any
	}{{1, nil}, {9, nil}, {0, int64(1)}, {-1 << 63, int64(1)}, {10, int64(9)}, {1<<63 - 1, int64(9)}} {
		err := queue.Whole("size", c.n, 1, 9)
		if c.limit == nil {
			if err != nil {
				t.Errorf("%d: %v", c.n, err)
			}
			continue
		}
		var e *queue.Error
		if !errors.As(err, &e) || e.Kind != queue.KindInvalid || e.Field != "size" || e.Limit != c.limit ||
			e.Message != fmt.Sprintf("size: must be 1 to 9, not %d", c.n) {
			t.Errorf("%d: %v, limit %v", c.n, err, e.Limit)
		}
	}
}
