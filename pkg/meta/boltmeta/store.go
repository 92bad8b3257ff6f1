package boltmeta

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Options tunes a store. The zero value of each field means its default.
type Options struct {
	// Clock tells when records have expired; time.Now by default.
	Clock queue.Clock
	// CacheBytes bounds the cache of decoded heads and cursors, in bytes of memory, roughly; 64 MiB
	// by default.
	CacheBytes int
	// MaxQueue bounds the requests that wait for the committer; 10,000 by default. Past it, calls
	// end with KindThrottled.
	MaxQueue int
	// LockTimeout is how long Open waits for another process to let go of the file; 1 s by default.
	LockTimeout time.Duration
	// SweepEvery is how often expired records are removed; 1 min by default, negative for never.
	SweepEvery time.Duration
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = 64 << 20
	}
	if o.MaxQueue == 0 {
		o.MaxQueue = 10_000
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = time.Second
	}
	if o.SweepEvery == 0 {
		o.SweepEvery = time.Minute
	}
	return o
}

// outcomeWait bounds how long a caller whose context has ended waits for a commit under way. A commit
// takes milliseconds; one that takes longer than this hangs in the disk.
const outcomeWait = 10 * time.Second

// Store implements meta.Store. Close it.
type Store struct {
	path    string
	opts    Options
	cache   *cache
	durable *watermark
	stats   counters

	queue   requestQueue
	stopped chan struct{} // closed when the committer has ended

	// dbMu guards db: readers hold it shared for as long as they use db; only opening anew and
	// Close hold it alone. Lock order: dbMu, then bbolt's own locks.
	dbMu sync.RWMutex
	db   *bolt.DB    // nil while the file could not be opened
	file os.FileInfo // of what db has open
	down error       // why db is nil

	// Only the committer touches what follows.
	arena  arena
	paused time.Time // until when commits are refused with pause, after one failed
	pause  error
	// halfPaused says that only requests that grow are refused: the disk is full, and what gives
	// messages out or settles them mostly gets by with the pages that the file has.
	halfPaused bool
	// commit is tx.Commit but in tests, which have it fail.
	commit func(tx *bolt.Tx) error
}

var _ meta.Store = (*Store)(nil)

// Open opens or creates the store in the file at path; its folder must exist. Errors: KindUnavailable
// if another process has it open, KindDenied if file or folder may not be written, KindCorrupt if it is
// damaged, KindFull, KindInternal.
func Open(path string, opts Options) (*Store, error) {
	s := &Store{
		path: path, opts: opts.withDefaults(), durable: newWatermark(),
		stopped: make(chan struct{}),
		commit:  func(tx *bolt.Tx) error { return tx.Commit() },
	}
	s.cache = newCache(s.opts.CacheBytes)
	s.queue.init(s.opts.MaxQueue)
	db, err := openFile(path, s.opts.LockTimeout)
	if err != nil {
		return nil, err
	}
	if err := s.adopt(db); err != nil {
		_ = db.Close()
		return nil, err
	}
	go s.run()
	return s, nil
}

// Close carries out what is queued, refuses what comes after (KindUnavailable), and closes the file.
// Closing twice is no error.
func (s *Store) Close() error {
	if !s.queue.close() {
		<-s.stopped
		return nil
	}
	<-s.stopped
	s.dbMu.Lock()
	defer s.dbMu.Unlock()
	db := s.db
	s.db, s.down = nil, errClosed()
	if db == nil {
		return nil
	}
	return closeFile(db, s.path)
}

func errClosed() error {
	return &queue.Error{Op: "use store", Kind: queue.KindUnavailable, Message: "the store is closed"}
}

// Apply implements meta.Store.
func (s *Store) Apply(ctx context.Context, op meta.Op) (meta.Result, error) {
	if err := meta.CheckOp(op); err != nil {
		return meta.Result{}, err
	}
	r := newRequest([]meta.Op{op})
	if err := s.do(ctx, op.Name(), r); err != nil {
		return meta.Result{}, err
	}
	return r.results[0], nil
}

// Transact implements meta.Store.
func (s *Store) Transact(ctx context.Context, ops []meta.Op) ([]meta.Result, error) {
	if err := meta.CheckTransact(ops); err != nil {
		return nil, err
	}
	r := newRequest(ops)
	if err := s.do(ctx, "transact", r); err != nil {
		return nil, err
	}
	return r.results, nil
}

// do queues r and waits for its answer. Once a commit carries the request its outcome is worth more
// than the caller's haste: it is waited for, up to outcomeWait.
func (s *Store) do(ctx context.Context, op string, r *request) error {
	if err := meta.Canceled(ctx, op); err != nil {
		return err
	}
	if err := s.queue.add(r); err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	if r.cancel() {
		return meta.Canceled(ctx, op)
	}
	limit := time.NewTimer(outcomeWait)
	defer limit.Stop()
	select {
	case <-r.done:
		return r.err
	case <-limit.C:
		return &queue.Error{Op: op, Kind: queue.KindOutcomeUnknown, Message: "the commit has not ended", Err: context.Cause(ctx)}
	}
}

// Stats counts what the store has done since it was opened.
type Stats struct {
	// Commits that succeeded, and the ops that they carried; Ops/Commits is the depth of group
	// commit.
	Commits, Ops uint64
	// Refused counts requests that were refused or failed by themselves, FailedCommits whole
	// commits.
	Refused, FailedCommits uint64
	// Fsyncs of the file.
	Fsyncs uint64
	// RecordBytes is what the records written take, PageBytes the pages written for them.
	RecordBytes, PageBytes uint64
	// CacheHits and CacheMisses count look-ups of heads and cursors.
	CacheHits, CacheMisses uint64
	// Swept counts expired records removed.
	Swept uint64
	// Queued is the number of requests waiting now, FileBytes the size of the file.
	Queued    int
	FileBytes int64
}

type counters struct {
	commits, ops, refused, failed, fsyncs, recordBytes, pageBytes, swept atomic.Uint64
}

// Stats reads the counters.
func (s *Store) Stats() Stats {
	st := Stats{
		Commits: s.stats.commits.Load(), Ops: s.stats.ops.Load(), Refused: s.stats.refused.Load(),
		FailedCommits: s.stats.failed.Load(), Fsyncs: s.stats.fsyncs.Load(), Swept: s.stats.swept.Load(),
		RecordBytes: s.stats.recordBytes.Load(), PageBytes: s.stats.pageBytes.Load(),
		Queued: s.queue.len(),
	}
	st.CacheHits, st.CacheMisses = s.cache.counts()
	if info, err := os.Stat(s.path); err == nil {
		st.FileBytes = info.Size()
	}
	return st
}
