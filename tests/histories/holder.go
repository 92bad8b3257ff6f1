//go:build unix

package histories

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// LeaseName is the lease that holders take.
const LeaseName = "history"

// note is a line that a holder writes: an operation that began, or, under the same number, ended.
type note struct {
	Number int
	Ended  bool
	// At is the time by the machine's monotonic clock, which all its processes share.
	At time.Duration
	Op history.Lease
}

func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // there is such a clock; a step without its time would be judged wrong
	}
	return time.Duration(ts.Nano())
}

// Keepers say who takes leases in one process.
type Keepers struct {
	// Count is how many there are, Process the number of their process; what they do is drawn by Seed and their numbers.
	Count, Process int
	Seed           uint64
	// TTL is the lease's.
	TTL time.Duration
}

// Hold takes leases in a store until ctx ends. It writes what it does to out, a line before and a line after each
// step, so that whoever kills it knows what was under way. It is an error, and the end, if a line cannot be written.
func Hold(ctx context.Context, store meta.Store, out io.Writer, k Keepers) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	h := &holder{out: out, stop: stop}
	for i := range k.Count {
		s := &stint{
			holder: h, ttl: k.TTL, keeper: lease.New(store, queue.NewIDs(nil), time.Now), client: k.Process*k.Count + i,
			rng: rand.New(rand.NewPCG(k.Seed, uint64(k.Process*k.Count+i))), // #nosec G404 -- must be repeatable, not secret
		}
		all.Go(func() {
			for ctx.Err() == nil {
				s.run(ctx)
			}
		})
	}
	all.Wait()
	return h.failed()
}

// holder writes the notes of one process.
type holder struct {
	stop   context.CancelFunc
	mu     sync.Mutex // guards what follows
	out    io.Writer
	number int
	broken error
}

func (h *holder) failed() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken
}

// step notes that a step begins, makes it, and notes what it answered.
func (h *holder) step(op history.Lease, do func(*history.Lease)) {
	h.mu.Lock()
	h.number++
	n := note{Number: h.number, At: monotonic(), Op: op}
	h.write(n)
	h.mu.Unlock()
	do(&n.Op)
	h.mu.Lock()
	defer h.mu.Unlock()
	n.Ended, n.At = true, monotonic()
	h.write(n)
}

func (h *holder) write(n note) {
	line, err := json.Marshal(n)
	if err == nil {
		_, err = h.out.Write(append(line, '\n')) // one write: a line is whole, or its end is missing
	}
	if err != nil {
		// What goes on unnoted would be judged as if it had not been.
		h.broken = fmt.Errorf("write a note: %w", err)
		h.stop()
	}
}

// stint is what a keeper does again and again.
type stint struct {
	*holder
	ttl    time.Duration
	keeper *lease.Keeper
	client int
	rng    *rand.Rand
}

// run takes the lease, holds it for a while, and gives it up or forgets it.
func (h *stint) run(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	op := history.Lease{Span: history.Span{Client: h.client}, Name: LeaseName, Kind: history.Acquire, TTL: h.ttl}
	var held *lease.Held
	var err error
	h.step(op, func(op *history.Lease) {
		held, err = h.keeper.Acquire(call, LeaseName, h.ttl)
		if op.Answer = answer(err, queue.CodeConflict); err == nil {
			op.Epoch, op.Value = uint64(held.Epoch()), held.Value()
		}
	})
	if err != nil {
		wait := 20 * time.Millisecond
		if e := (*queue.Error)(nil); errors.As(err, &e) {
			wait = max(wait, e.RetryAfter)
		}
		rest(ctx, wait)
		return
	}
	op.Epoch = uint64(held.Epoch())
	for range h.rng.IntN(6) {
		op.Kind = history.Trust
		h.step(op, func(op *history.Lease) {
			if op.Answer = history.Void; held.Valid() {
				op.Answer = history.OK
			}
		})
		op.Kind, op.Value = history.Commit, h.rng.Uint64()
		h.step(op, func(op *history.Lease) {
			err = held.Commit(call, op.Value)
			op.Answer = answer(err, queue.CodeFenced)
		})
		if err != nil {
			return
		}
		rest(ctx, time.Duration(h.rng.Int64N(int64(h.ttl/2))))
	}
	if h.rng.IntN(2) == 0 {
		rest(ctx, h.ttl/4)
		return
	}
	op.Kind = history.GiveUp
	h.step(op, func(op *history.Lease) {
		op.Answer = answer(held.Release(call), queue.CodeFenced)
	})
}

func rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Holder is a process that runs Hold.
type Holder struct {
	t     *testing.T
	cmd   *exec.Cmd
	read  sync.WaitGroup
	notes []note
	// broken is the first thing in its output that is no note, and not the cut end of one.
	broken error
}

// StartHolder starts a process that writes Hold's notes to its standard output. It ends with the test at the latest.
func StartHolder(t *testing.T, cmd *exec.Cmd) *Holder {
	t.Helper()
	h := &Holder{t: t, cmd: cmd}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.read.Go(func() {
		h.notes, h.broken = readNotes(out)
	})
	t.Cleanup(h.Kill)
	return h
}

// readNotes reads notes to their end. The last line of a process that was killed may be cut; anything else that is not
// a note is an error, as notes would be missing.
func readNotes(out io.Reader) ([]note, error) {
	var notes []note
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return notes, nil
		}
		if err != nil {
			return notes, fmt.Errorf("after %d notes: %w", len(notes), err)
		}
		var n note
		if err := json.Unmarshal(line, &n); err != nil {
			return notes, fmt.Errorf("after %d notes: %q: %w", len(notes), line, err)
		}
		notes = append(notes, n)
	}
}

// Signal sends the process a signal.
func (h *Holder) Signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := h.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the process as a power cut would. It fails the test if the process had ended by itself, or its notes cannot be read: what
// it did is then not all there.
func (h *Holder) Kill() {
	h.t.Helper()
	if h.cmd.ProcessState != nil {
		return
	}
	_ = h.cmd.Process.Kill()
	h.read.Wait()
	err := h.cmd.Wait()
	if status, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		h.t.Errorf("a holder ended by itself: %s, %v", h.cmd.ProcessState, err)
	}
	if h.broken != nil {
		h.t.Errorf("a holder's notes: %v", h.broken)
	}
}

// Leases are what holders did that have ended.
func Leases(holders ...*Holder) *history.History {
	out := &history.History{}
	for _, h := range holders {
		begun := make(map[int]*history.Lease)
		for _, n := range h.notes {
			if !n.Ended {
				op := n.Op
				op.Call, op.Return = n.At, history.Open
				begun[n.Number] = &op
				out.Leases = append(out.Leases, &op)
				continue
			}
			op := begun[n.Number]
			call := op.Call
			*op = n.Op
			op.Call, op.Return = call, n.At
		}
	}
	return out
}

// JudgeLeases holds what holders did against the model.
func JudgeLeases(t *testing.T, h *history.History, o history.Options, least int) {
	t.Helper()
	rep, err := history.Check(h, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(rep)
	for _, v := range rep.Violations {
		t.Error(v)
	}
	epochs, open := uint64(0), 0
	for _, l := range h.Leases {
		epochs = max(epochs, l.Epoch)
		if l.Return == history.Open {
			open++
		}
	}
	t.Logf("%d epochs; %d steps were cut off", epochs, open)
	if epochs < uint64(least) {
		t.Errorf("%d epochs are fewer than %d", epochs, least)
	}
}
