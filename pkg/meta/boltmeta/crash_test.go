package boltmeta_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/boltmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// childEnv makes the test binary run as a child of a test; its value is "<role> <path>".
const childEnv = "SPILLWAY_BOLTMETA_CHILD"

func TestMain(m *testing.M) {
	role, path, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		os.Exit(m.Run())
	}
	var err error
	switch role {
	case "append":
		err = appendForEver(path)
	case "full":
		err = fillUp(path)
	default:
		err = fmt.Errorf("no role %q", role)
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

func child(ctx context.Context, role, path string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role+" "+path)
	cmd.Stderr = os.Stderr
	return cmd
}

const crashSegment = queue.SegmentID("seg0000000000000")

func crashRef(n uint64) meta.Ref {
	r := meta.Ref{Kind: meta.RefBatch, Inline: true, Object: strconv.FormatUint(n, 10), Count: 1, Len: 1000}
	binary.BigEndian.PutUint64(r.ID[:], n)
	return r
}

// appendForEver appends from 8 goroutines, rolling as a writer does, and says each acknowledged append
// on its own line: "<ref number> <offset>".
func appendForEver(path string) error {
	s, err := boltmeta.Open(path, boltmeta.Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	_, err = s.Apply(ctx, meta.Put{Record: &meta.Head{Segment: crashSegment, Range: queue.Ring()}, If: meta.Absent(), Version: 1})
	if err != nil && !meta.IsRefused(err, meta.ReasonExists) {
		return err
	}
	start := uint64(time.Now().UnixNano())
	var out sync.Mutex
	failed := make(chan error)
	for worker := range uint64(8) {
		go func() {
			for n := start + worker; ; n += 8 {
				id := strconv.FormatUint(n, 10)
				res, err := s.Apply(ctx, meta.Append{
					Segment: crashSegment, Refs: []meta.Ref{crashRef(n)}, Payload: &meta.Payload{ID: id, Data: make([]byte, 1000)},
				})
				switch {
				case meta.IsRefused(err, meta.ReasonTailFull):
					n -= 8
				case err != nil:
					failed <- err
					return
				default:
					out.Lock()
					fmt.Println(n, res.Offset)
					out.Unlock()
				}
				if err := roll(ctx, s); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

func roll(ctx context.Context, s meta.Store) error {
	h, _, err := meta.Fetch[*meta.Head](ctx, s, meta.HeadKey(crashSegment))
	if err != nil || len(h.Tail) < queue.RollRefs {
		return err
	}
	_, err = s.Transact(ctx, []meta.Op{
		meta.Put{Record: &meta.RefPage{Segment: crashSegment, First: h.TailFirst, Refs: h.Tail}, If: meta.Absent(), Version: 1},
		meta.Trim{Segment: crashSegment, First: h.TailFirst, Count: len(h.Tail)},
	})
	if _, refused := meta.AsRefused(err); refused {
		return nil
	}
	return err
}

// TestKill kills a process that appends, in the middle of it, and holds that every append it had
// acknowledged is there, at its offset, with its payload.
func TestKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	acked := make(map[queue.Offset]uint64)
	for round := range 6 {
		cmd := child(t.Context(), "append", path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			var ref uint64
			var off queue.Offset
			if _, err := fmt.Sscan(lines.Text(), &ref, &off); err != nil {
				t.Fatalf("the child says %q", lines.Text())
			}
			acked[off] = ref
			if n == 100+round*150 {
				// What the child says from here to its death is read and counts too.
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = cmd.Wait() // killed: the error is what was asked for
		checkAcked(t, path, acked)
	}
	if len(acked) < 1000 {
		t.Errorf("only %d appends were acknowledged", len(acked))
	}
}

func checkAcked(t *testing.T, path string, acked map[queue.Offset]uint64) {
	t.Helper()
	s, err := boltmeta.Open(path, boltmeta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	h, _, err := meta.Fetch[*meta.Head](t.Context(), s, meta.HeadKey(crashSegment))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	all := make(map[queue.Offset]meta.RefID)
	next := queue.Offset(0)
	add := func(refs []meta.Ref) {
		for _, r := range refs {
			all[next] = r.ID
			next += queue.Offset(r.Count)
			if _, err := s.Get(t.Context(), meta.PayloadKey(r.Object)); err != nil {
				t.Fatalf("payload of %d: %v", next, err)
			}
		}
	}
	for q := meta.PagesFrom(crashSegment, 0, 100); ; {
		page, err := s.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			p := item.Record.(*meta.RefPage)
			if p.First != next {
				t.Fatalf("a page starts at %d, want %d", p.First, next)
			}
			add(p.Refs)
		}
		if !page.More {
			break
		}
		q.From = meta.After(page.Items[len(page.Items)-1].Record.Key().SK)
	}
	if h.TailFirst != next {
		t.Fatalf("the tail starts at %d, pages end at %d", h.TailFirst, next)
	}
	add(h.Tail)
	for off, n := range acked {
		if all[off] != crashRef(n).ID {
			t.Errorf("acknowledged append %d is not at offset %d", n, off)
		}
	}
}
