package boltmeta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func openTest(t *testing.T, opts Options) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "meta.db"), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func topic(epoch queue.Epoch) meta.Put {
	return meta.Put{Record: &meta.Topic{ID: "t", Epoch: epoch}, Version: meta.Version(epoch) + 1}
}

func epochOf(t *testing.T, s *Store) queue.Epoch {
	t.Helper()
	topic, _, err := meta.Fetch[*meta.Topic](t.Context(), s, meta.TopicKey("t"))
	if err != nil {
		t.Fatal(err)
	}
	return topic.Epoch
}

func must(t *testing.T, s *Store, op meta.Op) {
	t.Helper()
	if _, err := s.Apply(t.Context(), op); err != nil {
		t.Fatal(err)
	}
}

// eventually applies op until it succeeds: after a failed commit the store pauses.
func eventually(t *testing.T, s *Store, op meta.Op) {
	t.Helper()
	for range 200 {
		if _, err := s.Apply(t.Context(), op); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s never succeeds again", op.Name())
}

// TestFailedCommit breaks a commit at each step, with a head in the cache, and holds what is answered,
// what is read meanwhile, and that the store goes on.
func TestFailedCommit(t *testing.T) {
	for _, tc := range []struct {
		name     string
		commit   func(tx *bolt.Tx) error
		kind     queue.Kind
		happened bool
	}{
		{"before the pages", func(*bolt.Tx) error { return syscall.EIO }, queue.KindUnavailable, false},
		{"no room", func(*bolt.Tx) error { return errors.New("file resize error: " + syscall.ENOSPC.Error()) }, queue.KindFull, false},
		{"after the meta page", func(tx *bolt.Tx) error { return errors.Join(tx.Commit(), syscall.EIO) }, queue.KindOutcomeUnknown, true},
		{"panic", func(*bolt.Tx) error { panic("page 7 is not what it should be") }, queue.KindCorrupt, false},
		{"panic after the meta page", func(tx *bolt.Tx) error { _ = tx.Commit(); panic("late") }, queue.KindOutcomeUnknown, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := openTest(t, Options{})
			must(t, s, meta.Put{Record: &meta.Head{Segment: "s", Range: queue.Ring()}, Version: 1})
			must(t, s, topic(1))
			appendOne := func(n uint64) meta.Append { return meta.Append{Segment: "s", Refs: []meta.Ref{benchRef(n)}} }
			must(t, s, appendOne(1))
			var once sync.Once
			commit := s.commit
			s.commit = func(tx *bolt.Tx) (err error) {
				failed := false
				defer func() { s.commit = commit }() // the committer is the only one who reads it
				once.Do(func() { failed = true })
				if failed {
					return tc.commit(tx)
				}
				return commit(tx)
			}
			if _, err := s.Transact(t.Context(), []meta.Op{appendOne(2), topic(2)}); !queue.Is(err, tc.kind) {
				t.Fatalf("ended with %v, want %v", err, tc.kind)
			}
			want := queue.Epoch(1)
			if tc.happened {
				want = 2
			}
			if got := epochOf(t, s); got != want {
				t.Errorf("the topic is at %d, want %d", got, want)
			}
			h, _, err := meta.Fetch[*meta.Head](t.Context(), s, meta.HeadKey("s"))
			if err != nil || len(h.Tail) != int(want) {
				t.Errorf("the head is %+v, %v", h, err)
			}
			eventually(t, s, topic(3))
			if got := epochOf(t, s); got != 3 {
				t.Errorf("the topic is at %d", got)
			}
			if st := s.Stats(); st.FailedCommits != 1 {
				t.Errorf("%d commits failed", st.FailedCommits)
			}
		})
	}
}

// hold blocks the committer in its next commit until release is called.
func hold(s *Store) (began <-chan struct{}, release func()) {
	start, end := make(chan struct{}), make(chan struct{})
	commit := s.commit
	s.commit = func(tx *bolt.Tx) error {
		s.commit = commit
		close(start)
		<-end
		return commit(tx)
	}
	return start, sync.OnceFunc(func() { close(end) })
}

func TestCancelWhileQueued(t *testing.T) {
	s := openTest(t, Options{MaxQueue: 1})
	must(t, s, topic(1))
	began, release := hold(s)
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	carried := make(chan error)
	go func() {
		_, err := s.Apply(ctx, topic(2))
		carried <- err
	}()
	<-began
	queued := make(chan error)
	go func() {
		_, err := s.Apply(ctx, topic(3))
		queued <- err
	}()
	for s.Stats().Queued == 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := s.Apply(t.Context(), topic(4)); !queue.Is(err, queue.KindThrottled) {
		t.Errorf("past the bound of the queue: %v", err)
	}
	if got := epochOf(t, s); got != 1 {
		t.Errorf("a commit that has not ended shows: %d", got)
	}
	cancel()
	if err := <-queued; !queue.Is(err, queue.KindCanceled) {
		t.Errorf("canceled while queued: %v", err)
	}
	release()
	if err := <-carried; err != nil {
		t.Errorf("canceled while the commit ran: %v", err)
	}
	// The queue has room again once the committer has passed over what was canceled.
	eventually(t, s, meta.Put{Record: &meta.Name{Name: "later"}, Version: 1})
	if got := epochOf(t, s); got != 2 {
		t.Errorf("the topic is at %d, want 2", got)
	}
}

// TestReadBetweenMetaPageAndSync holds the window that durable.go is about: the meta page is written,
// its fsync has not returned.
func TestReadBetweenMetaPageAndSync(t *testing.T) {
	s := openTest(t, Options{})
	must(t, s, topic(1))
	written, end := make(chan struct{}), make(chan struct{})
	commit := s.commit
	s.commit = func(tx *bolt.Tx) error {
		s.commit = commit
		err := commit(tx)
		close(written)
		<-end
		return err
	}
	put := make(chan error)
	go func() {
		_, err := s.Apply(context.Background(), topic(2))
		put <- err
	}()
	<-written
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if item, err := s.Get(ctx, meta.TopicKey("t")); !queue.Is(err, queue.KindCanceled) {
		t.Errorf("a read in the window gave %+v, %v", item.Record, err)
	}
	read := make(chan error)
	go func() {
		_, err := s.Get(context.Background(), meta.TopicKey("t"))
		read <- err
	}()
	close(end)
	if err := errors.Join(<-put, <-read); err != nil {
		t.Error(err)
	}
	if got := epochOf(t, s); got != 2 {
		t.Errorf("the topic is at %d", got)
	}
}

func TestSweep(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	var mu sync.Mutex
	s := openTest(t, Options{SweepEvery: 5 * time.Millisecond, Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return now
	}})
	attempt := func(token string, expires queue.Millis) meta.Put {
		return meta.Put{Record: &meta.Attempt{Topic: "t", Token: token, Expires: expires}, Version: 1}
	}
	for token, expires := range map[string]queue.Millis{"a": 1_000_001, "b": 1_000_001, "c": 1_000_002, "never": 0} {
		must(t, s, attempt(token, expires))
	}
	must(t, s, attempt("b", 1_000_003)) // lives on
	must(t, s, attempt("c", 1_000_001)) // dies earlier
	must(t, s, meta.Delete{Key: meta.AttemptKey("t", "a")})
	must(t, s, attempt("a", 1_000_009))
	mu.Lock()
	now = now.Add(2 * time.Millisecond)
	mu.Unlock()
	for s.Stats().Swept == 0 {
		time.Sleep(time.Millisecond)
	}
	for token, there := range map[string]bool{"a": true, "b": true, "c": false, "never": true} {
		if _, err := s.Get(t.Context(), meta.AttemptKey("t", token)); (err == nil) != there {
			t.Errorf("%s: %v", token, err)
		}
	}
	if n := s.Stats().Swept; n != 1 {
		t.Errorf("swept %d", n)
	}
}

func TestClose(t *testing.T) {
	s := openTest(t, Options{})
	must(t, s, topic(1))
	must(t, s, meta.Put{Record: &meta.Head{Segment: "s", Range: queue.Ring()}, Version: 1})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			_, err := s.Apply(context.Background(), meta.Put{Record: &meta.Name{Name: fmt.Sprint("n", i)}, Version: 1})
			if err != nil && !queue.Is(err, queue.KindUnavailable) {
				t.Errorf("while closing: %v", err)
			}
		})
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for _, key := range []meta.Key{meta.TopicKey("t"), meta.HeadKey("s")} {
		if _, err := s.Get(t.Context(), key); !queue.Is(err, queue.KindUnavailable) {
			t.Errorf("get after close: %v", err)
		}
	}
	if _, err := s.Apply(t.Context(), topic(2)); !queue.Is(err, queue.KindUnavailable) {
		t.Errorf("put after close: %v", err)
	}
}

func TestSecondOpen(t *testing.T) {
	s := openTest(t, Options{})
	began := time.Now()
	_, err := Open(s.path, Options{LockTimeout: 100 * time.Millisecond})
	if !queue.Is(err, queue.KindUnavailable) || time.Since(began) > 5*time.Second {
		t.Errorf("ended with %v after %v", err, time.Since(began))
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none", "meta.db"), Options{}); err == nil {
		t.Error("a folder that is not there opens")
	}
	for name, content := range map[string][]byte{"short": []byte("x"), "text": make([]byte, 1<<16)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, Options{}); !queue.Is(err, queue.KindCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if os.Geteuid() == 0 {
		return // nothing is read-only to root
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(dir, "new"), Options{}); !queue.Is(err, queue.KindDenied) {
		t.Errorf("read-only folder: %v", err)
	}
}

func TestTranslate(t *testing.T) {
	for _, tc := range []struct {
		err  error
		kind queue.Kind
	}{
		{&os.PathError{Op: "open", Err: syscall.EACCES}, queue.KindDenied},
		{&os.PathError{Op: "open", Err: syscall.EROFS}, queue.KindDenied},
		{syscall.ENOSPC, queue.KindFull},
		{errors.New("file resize error: " + syscall.EFBIG.Error()), queue.KindFull}, // as bbolt words it
		{syscall.EIO, queue.KindUnavailable},
		{queue.Invalid("x", nil, "y"), queue.KindInvalid},
	} {
		if err := translate("open store", "meta.db", tc.err); !queue.Is(err, tc.kind) {
			t.Errorf("%v becomes %v, want %v", tc.err, err, tc.kind)
		}
	}
}

// TestFullDiskConsumes: where the disk has no room for what is new, what settles is carried out: in the
// batch that failed, and while new messages are refused without being tried.
func TestFullDiskConsumes(t *testing.T) {
	s := openTest(t, Options{})
	payload := func(n int) meta.Put {
		return meta.Put{Record: &meta.Payload{ID: fmt.Sprint(n), Data: []byte("x")}, If: meta.Absent(), Version: 1}
	}
	name := func(n int) *meta.Name { return &meta.Name{Name: fmt.Sprintf("name.%d", n)} }
	for n := range 3 {
		must(t, s, meta.Put{Record: name(n), Version: 1})
	}
	began, release := hold(s)
	defer release()
	held := make(chan error, 1)
	go func() { _, err := s.Apply(t.Context(), meta.Put{Record: name(9), Version: 1}); held <- err }()
	<-began
	put, removed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := s.Apply(t.Context(), payload(1)); put <- err }()
	go func() {
		_, err := s.Apply(t.Context(), meta.Delete{Key: name(0).Key(), Kind: meta.KindName})
		removed <- err
	}()
	for s.Stats().Queued < 2 {
		time.Sleep(time.Millisecond)
	}
	commit := s.commit // of the committer, which waits in it
	tries := 0
	s.commit = func(tx *bolt.Tx) error {
		tries++
		if k, _ := tx.Bucket([]byte(bucketPayloads)).Cursor().First(); k != nil {
			return errors.Join(tx.Rollback(), syscall.ENOSPC)
		}
		return commit(tx)
	}
	release()
	if err := errors.Join(<-held, <-removed); err != nil {
		t.Errorf("beside what does not fit: %v", err)
	}
	if err := <-put; !queue.Is(err, queue.KindFull) {
		t.Errorf("what does not fit: %v", err)
	}
	before := tries
	s.paused = time.Now().Add(time.Hour) // of the committer, which has nothing to do
	if _, err := s.Apply(t.Context(), payload(2)); !queue.Is(err, queue.KindFull) || tries != before {
		t.Errorf("%d tries while the disk is full: %v", tries-before, err)
	}
	must(t, s, meta.Delete{Key: name(1).Key(), Kind: meta.KindName})
	s.paused = time.Time{}
	s.commit = commit
	must(t, s, payload(1))
	for n, want := range []queue.Kind{queue.KindNotFound, queue.KindNotFound, 0} {
		if _, err := s.Get(t.Context(), name(n).Key()); queue.KindOf(err) != want && (want != 0 || err != nil) {
			t.Errorf("%s: %v", name(n).Name, err)
		}
	}
}

// TestFileIsTakenAway: nothing is acknowledged that went to a file which the next start will not find.
func TestFileIsTakenAway(t *testing.T) {
	s := openTest(t, Options{})
	must(t, s, topic(1))
	refused := func(what string) {
		t.Helper()
		if _, err := s.Apply(t.Context(), topic(2)); !queue.Is(err, queue.KindUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
		if err := s.Ready(); !queue.Is(err, queue.KindUnavailable) {
			t.Errorf("%s, ready: %v", what, err)
		}
	}
	away := s.path + ".away"
	if err := os.Rename(s.path, away); err != nil {
		t.Fatal(err)
	}
	refused("moved away")
	if err := os.WriteFile(s.path, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("replaced")
	if got := epochOf(t, s); got != 1 {
		t.Errorf("the topic is at %d", got)
	}
	if err := os.Rename(away, s.path); err != nil {
		t.Fatal(err)
	}
	must(t, s, topic(3))
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
}
