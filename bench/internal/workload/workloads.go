// Package workload puts one workload on one peer and measures it.
//
// Vocabulary: a flow sends and receives at once, as fast as it can, closed loop; a trickle sends at a fixed rate, open
// loop; a backlog is filled first and drained then. The warm-up is the same load for a moment, before anything counts.
//
// Invariants: the ledger judges every run: each acknowledged message must come to each group, undamaged. Sending ends
// by count or by time, whichever is first, so that a slow peer's run is short and not small in time. An open loop's
// latency counts from when the message was due, so that a peer that stalls cannot hide it by slowing the load.
//
// Non-goals: knowledge of any peer.
package workload

import "time"

// Workload is a load. Its counts and times are those of scale 1.
type Workload struct {
	Name, Title string
	kind        kind

	// Senders and Receivers (of each of Groups) work side by side. A Send has Batch messages of Size bytes.
	Senders, Receivers, Groups, Batch, Size int
	// Messages and Time bound the sending.
	Messages int64
	Time     time.Duration
	// Rate of a trickle, in messages a second.
	Rate int
	// Delay of each message.
	Delay time.Duration
	// Reference: bodies go through the peer's store for large objects.
	Reference bool
	// Extra workloads run only when they are named.
	Extra bool
}

type kind int

const (
	flow kind = iota
	trickle
	backlog
)

// Trickle reports whether latency is what counts, not throughput.
func (w *Workload) Trickle() bool { return w.kind == trickle || w.Delay > 0 }

// Backlog reports whether it is filled first and drained then.
func (w *Workload) Backlog() bool { return w.kind == backlog }

// All are the workloads.
func All() []Workload {
	const kb, unbounded = 1000, 1 << 22
	return []Workload{
		{Name: "batch", Title: "1 KB, 100 a send, 8 senders", Senders: 8, Receivers: 4, Groups: 1, Batch: 100, Size: kb, Messages: unbounded, Time: 2500 * time.Millisecond},
		{Name: "single", Title: "1 KB, one a send, 64 senders", Senders: 64, Receivers: 4, Groups: 1, Batch: 1, Size: kb, Messages: unbounded, Time: 2500 * time.Millisecond},
		{Name: "large", Title: "100 KB, 10 a send, 4 senders", Senders: 4, Receivers: 4, Groups: 1, Batch: 10, Size: 100 * kb, Messages: unbounded, Time: 2500 * time.Millisecond},
		{
			Name: "reference", Title: "10 MB by reference, 2 senders", Senders: 2, Receivers: 2, Groups: 1, Batch: 1, Size: 10 * kb * kb,
			Messages: unbounded, Time: 2500 * time.Millisecond, Reference: true,
		},
		{Name: "fanout", Title: "1 KB, 100 a send, to 4 groups", Senders: 4, Receivers: 2, Groups: 4, Batch: 100, Size: kb, Messages: unbounded, Time: 2500 * time.Millisecond},
		{
			Name: "delayed", Title: "100,000 of 1 KB delayed by 5 s", Senders: 8, Receivers: 4, Groups: 1, Batch: 100, Size: kb,
			Messages: 100_000, Time: 6 * time.Second, Delay: 5 * time.Second,
		},
		{Name: "latency", Title: "1 KB, 500 a second, end to end", kind: trickle, Senders: 64, Receivers: 4, Groups: 1, Batch: 1, Size: kb, Time: 5 * time.Second, Rate: 500},
		{
			Name: "backlog", Title: "backlog of up to 1 million of 1 KB", kind: backlog, Senders: 8, Receivers: 4, Groups: 1, Batch: 100, Size: kb,
			Messages: 1_000_000, Time: 8 * time.Second,
		},
		{
			Name: "backlog-10m", Title: "backlog of 10 million of 1 KB", kind: backlog, Senders: 8, Receivers: 4, Groups: 1, Batch: 100, Size: kb,
			Messages: 10_000_000, Time: 20 * time.Minute, Extra: true,
		},
	}
}

// scaled gives the workload at a scale.
func (w Workload) scaled(scale float64) Workload {
	w.Messages = max(int64(float64(w.Messages)*scale), int64(w.Batch))
	w.Time = max(time.Duration(float64(w.Time)*scale), 200*time.Millisecond)
	return w
}
