package host

import (
	"io"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/functions/emf"
	"github.com/spillway-mq/spillway/pkg/httpapi"
)

// metrics writes what calls and runs came to into the log.
type metrics struct {
	function, table string
	clock           func() time.Time
	mu              sync.Mutex // guards out: lines must not mix
	out             io.Writer
}

func (m *metrics) observe(o httpapi.Observation) {
	m.write(emf.Call{
		At: m.clock(), Table: m.table, Function: m.function, Route: o.Method + " " + o.Route, Code: string(o.Code),
		Status: o.Status, EntryFault: o.EntryFault, Duration: o.Duration, Received: o.Received, Sent: o.Sent,
	}.Line())
}

// run fills in whose run it was.
func (m *metrics) run(r emf.Run) {
	r.At, r.Table, r.Function = m.clock(), m.table, m.function
	m.write(r.Line())
}

func (m *metrics) write(line []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, _ = m.out.Write(line)
}
