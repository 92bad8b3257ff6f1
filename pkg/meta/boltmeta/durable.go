package boltmeta

import (
	"context"
	"sync"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// watermark is the id of the last bolt transaction that is published. bbolt's commit writes the meta
// page and then syncs it; a read transaction that begins in between sees what a loss of power could
// still undo, and what the cache does not show yet. Such a reader has an id above the watermark, and
// waits:
//
//	committer: meta page of 8 written   | synced | cache published | watermark 8
//	reader:              begins, id 8 ──────── waits ────────────────▶ reads
//
// The committer cannot be waiting for that reader in turn: it remaps the file only before it writes
// the meta page, and before the next commit it raises the watermark.
type watermark struct {
	mu      sync.Mutex // guards what is below
	txid    int
	changed chan struct{} // closed, and made anew, when txid or failed change
	failed  bool          // the commit above txid failed: do not wait for it
}

func newWatermark() *watermark { return &watermark{changed: make(chan struct{})} }

func (w *watermark) raise(txid int) { w.set(txid, false) }

// fail tells who waits for the commit under way that it will not be published.
func (w *watermark) fail() {
	w.mu.Lock()
	txid := w.txid
	w.mu.Unlock()
	w.set(txid, true)
}

func (w *watermark) set(txid int, failed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.txid, w.failed = txid, failed
	close(w.changed)
	w.changed = make(chan struct{})
}

// wait returns once txid is published.
func (w *watermark) wait(ctx context.Context, op string, txid int) error {
	for {
		w.mu.Lock()
		changed, at, failed := w.changed, w.txid, w.failed
		w.mu.Unlock()
		switch {
		case txid <= at:
			return nil
		case failed:
			return &queue.Error{Op: op, Kind: queue.KindUnavailable, Message: "a commit failed and the file is being opened anew"}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return meta.Canceled(ctx, op)
		}
	}
}
