package httpapi

import (
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// DefaultPatience is how long a caller may be silent unless Deps say otherwise.
	DefaultPatience = 30 * time.Second
	// minBytesPerSecond is how fast a body has to come on the whole: a byte now and then is no
	// progress.
	minBytesPerSecond = 8 << 10
	// writeBytes is how much of an answer the caller has to take within the patience.
	writeBytes = 256 << 10
)

// patience bounds what a caller holds that has stopped to send its body, or to take its answer: a
// goroutine, buffers, and, of a claim, messages that nobody works on. It sets the connection's
// deadlines as bytes go through, and not once for the call, since a call may rightly take hours (an
// upload) and a long poll is silent.
//
// The deadlines end by themselves: net/http lifts the one for reading when the body has ended, before it
// begins to wait for the caller to go away, and the one for writing when the call is over. A test
// holds it to that, since a long poll would die by the one and the next call by the other.
type patience struct {
	connection *http.ResponseController
	most       time.Duration
	start      time.Time
}

// newPatience begins a call. A body has its deadline from the start: if no handler reads it, net/http
// does, up to a bound, before it answers.
func newPatience(w http.ResponseWriter, r *http.Request, most time.Duration) *patience {
	p := &patience{connection: http.NewResponseController(w), most: most, start: time.Now()}
	if r.ContentLength != 0 {
		p.beforeRead(0)
	}
	return p
}

// beforeRead is called with the bytes of the body that have come. A writer without deadlines (a
// recorder, a gateway's) has nobody to wait for.
func (p *patience) beforeRead(received int64) {
	now := time.Now()
	slowest := p.start.Add(p.most + time.Duration(received/minBytesPerSecond)*time.Second)
	deadline := now.Add(p.most)
	if slowest.Before(deadline) {
		deadline = slowest
	}
	_ = p.connection.SetReadDeadline(deadline)
}

// afterRead is called with what a read of the body ended with, and gives what to tell of it.
func (p *patience) afterRead(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &queue.Error{Op: "read request", Kind: queue.KindCanceled, Message: "the body did not come in time", Err: err}
	}
	return err
}

// beforeWrite is called before at most writeBytes are written.
func (p *patience) beforeWrite() { _ = p.connection.SetWriteDeadline(time.Now().Add(p.most)) }
