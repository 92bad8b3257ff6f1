// Package segment is the mechanism of a segment's log: commit, roll, read.
//
// Vocabulary: the head is the record that a commit changes; its tail holds the newest refs; a roll
// moves the tail into a page; a located ref is a ref with the offset of its first
// message.
//
// Invariants: a commit appends at most once whatever the store answers (append.go says how); offsets
// are dense; a page is written only in the transaction that trims the same refs off the head, so a
// late writer cannot bring back an old one; what is read at an offset never changes.
//
// Non-goals: topics, routing and subscriptions; deciding when to seal.
package segment

import (
	"context"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Deps are what a Log stands on. All but CacheBytes are required.
type Deps struct {
	Meta  meta.Store
	Blob  blob.Store
	IDs   *queue.IDs
	Clock queue.Clock
	// CacheBytes bounds the memory that cached pages, indexes and batches take; 0 means 16 MiB.
	CacheBytes int64
	// Later runs what a commit's caller need not wait for: the roll of a tail that the commit has made long. It is for
	// stores where a roll takes long, and a commit that meets it is refused for as long: calls of the same process then
	// wait for it (Rolling). nil has the commit roll before it answers.
	Later func(work func())
}

// Log works on any number of segments. Safe for concurrent use. It keeps nothing but caches of what
// cannot change, and lower bounds of what only grows.
type Log struct {
	meta  meta.Store
	blob  blob.Store
	ids   *queue.IDs
	clock queue.Clock
	cache *cache
	// rolls joins the rolls of one tail that many writers ask for at once.
	rolls  singleflight.Group
	sealed sealedHeads
	later  func(func())
	// rolling holds a channel for each segment with a roll that runs later, closed at its end.
	mu      sync.Mutex // guards rolling
	rolling map[queue.SegmentID]chan struct{}
}

const defaultCacheBytes = 16 << 20

// New makes a Log.
func New(d Deps) *Log {
	if d.CacheBytes == 0 {
		d.CacheBytes = defaultCacheBytes
	}
	return &Log{
		meta: d.Meta, blob: d.Blob, ids: d.IDs, clock: d.Clock, cache: newCache(d.CacheBytes), later: d.Later,
		rolling: make(map[queue.SegmentID]chan struct{}),
	}
}

// Head reads a segment's head; NotFound (CodeSegmentNotFound) if there is none.
func (l *Log) Head(ctx context.Context, id queue.SegmentID) (*meta.Head, error) {
	h, _, err := meta.Fetch[*meta.Head](ctx, l.meta, meta.HeadKey(id))
	if err != nil {
		if queue.Is(err, queue.KindNotFound) {
			return nil, &queue.Error{Op: "read head", Subject: string(id), Kind: queue.KindNotFound, Code: queue.CodeSegmentNotFound, Err: err}
		}
		return nil, err
	}
	l.cache.noteTail(h)
	return h, nil
}

// TailFirst is a lower bound of the first offset that the segment's head still holds: what lies
// below is in pages for good, and can be read without the head. 0 if this Log has not seen the head
// yet. No store call.
func (l *Log) TailFirst(id queue.SegmentID) queue.Offset { return l.cache.tailFirst(id) }
