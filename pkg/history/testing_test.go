package history

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// at makes a span of milliseconds; a return of -1 is open.
func at(client int, call, ret int) Span {
	s := Span{Client: client, Call: ms(call), Return: ms(ret)}
	if ret < 0 {
		s.Return = Open
	}
	return s
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func id(off int) queue.MessageID {
	return queue.MessageID{Segment: "seg", Offset: queue.Offset(off)}
}

// judged is a history and whether it is right.
type judged struct {
	name  string
	h     History
	o     Options
	wrong bool
}

func judge(t *testing.T, cases []judged) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			rep, err := Check(&c.h, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if rep.Slowest == 0 {
				t.Fatal("nothing was judged")
			}
			if got := len(rep.Violations) > 0; got != c.wrong {
				t.Errorf("refused %v, want %v: %v", got, c.wrong, rep.Violations)
			}
			for _, v := range rep.Violations {
				t.Log(v)
			}
		})
	}
}
