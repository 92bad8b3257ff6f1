package fileblob

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// maxGroupBytes and maxGroupCreates bound one write, but for a single larger object. A group of
	// 1 MiB was measured to be as fast as the disk gets, and 64 callers of 100 KiB each to be half
	// as fast again with it as with 8 MiB: while one group is synced, the callers of the last one
	// prepare the next. Each create takes two vectors.
	maxGroupBytes   = 1 << 20
	maxGroupCreates = 500
)

// lane writes the creates of one prefix to its open pack. Its goroutine runs only while there are
// creates to write.
type lane struct {
	s      *Store
	prefix string

	mu      sync.Mutex // guards queue and running
	queue   []*creation
	running bool

	// What follows belongs to the goroutine; it is handed on through running.
	pack *pack
	f    file // a handle of its own, so that it alone hears of its failed write-backs
	end  int64
	meta []byte
	vec  [][]byte
}

// A creation is claimed once: by the writer, or by its caller who gives up.
const (
	creationWaiting int32 = iota
	creationTaken
	creationCanceled
)

type creation struct {
	data  []byte
	entry entry
	state atomic.Int32
	key   string
	err   error
	done  chan struct{} // closed when key and err are set
}

// create queues data and waits for its group. A context that ends before the group is written gives
// Canceled; after that the outcome is close, and data is still in use, so it waits for it.
func (l *lane) create(ctx context.Context, data []byte) (string, error) {
	c := &creation{data: data, done: make(chan struct{})}
	c.entry = entry{
		nonce: l.s.opts.IDs.ID(), size: int64(len(data)), sum: blob.CRC32C(data), created: l.s.clock.Millis(),
	}
	l.mu.Lock()
	l.queue = append(l.queue, c)
	if !l.running {
		l.running = true
		l.s.writers.Add(1) // the caller's own count keeps Close from having passed its Wait
		go l.run()
	}
	l.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if c.state.CompareAndSwap(creationWaiting, creationCanceled) {
			return "", blob.Canceled(ctx, "create object", l.prefix)
		}
		<-c.done
	}
	return c.key, c.err
}

func (l *lane) run() {
	defer l.s.writers.Done()
	for {
		group := l.take()
		if group == nil {
			return
		}
		err := l.write(group)
		for _, c := range group {
			if c.err = err; err == nil {
				c.key = l.pack.key(&c.entry)
			}
			close(c.done)
		}
		if l.pack != nil && l.pack.doubtful.Load() {
			l.retire()
		}
	}
}

// take claims the next group; nil, and the end of running, if nobody waits.
func (l *lane) take() []*creation {
	l.mu.Lock()
	defer l.mu.Unlock()
	var group []*creation
	var size int64
	for len(l.queue) > 0 && len(group) < maxGroupCreates {
		c := l.queue[0]
		if len(group) > 0 && size+stride(c.entry.size) > maxGroupBytes {
			break
		}
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if c.state.CompareAndSwap(creationWaiting, creationTaken) {
			group = append(group, c)
			size += stride(c.entry.size)
		}
	}
	if group == nil {
		l.running = false
		l.queue = nil
	}
	return group
}

// write stores the group durably, all or nothing but for a crash.
func (l *lane) write(group []*creation) error {
	var size int64
	for _, c := range group {
		size += stride(c.entry.size)
	}
	if l.pack != nil && (l.pack.doubtful.Load() || l.end+size > l.s.opts.PackBytes) {
		l.retire()
	}
	if l.pack == nil {
		if err := l.begin(); err != nil {
			return err
		}
	} else if err := l.inPlace(); err != nil {
		return err
	}
	l.encode(group)
	err := l.f.WriteVec(l.vec, l.end)
	clear(l.vec)
	l.s.written.Add(size)
	if err != nil {
		return l.undo(err)
	}
	if err = l.s.sync(l.f); err != nil {
		// The system may have dropped the pages and call the next sync a success.
		l.pack.doubtful.Store(true)
		return unknownOutcome("create object", l.prefix, err)
	}
	l.end += size
	l.pack.commit(l.end, int64(len(group)))
	return nil
}

// encode lays the group out: before each entry's data its header, and before that the padding of
// the entry in front.
func (l *lane) encode(group []*creation) {
	const room = entryHeader + entryAlign
	if need := len(group)*room + entryAlign; cap(l.meta) < need {
		l.meta = make([]byte, need)
	}
	meta := l.meta[:0]
	l.vec = l.vec[:0]
	pos, pad := l.end, int64(0)
	for _, c := range group {
		c.entry.pos = pos
		start := len(meta)
		meta = meta[:start+int(pad)+entryHeader]
		clear(meta[start : start+int(pad)])
		c.entry.encode(meta[start+int(pad):], &l.pack.salt)
		l.vec = append(l.vec, meta[start:])
		if len(c.data) > 0 {
			l.vec = append(l.vec, c.data)
		}
		pos += stride(c.entry.size)
		pad = stride(c.entry.size) - entryHeader - c.entry.size
	}
	if pad > 0 {
		start := len(meta)
		meta = meta[:start+int(pad)]
		clear(meta[start:])
		l.vec = append(l.vec, meta[start:])
	}
}

// undo takes back a write that failed, so that it changed nothing. If only room was missing the pack
// is as good as before.
func (l *lane) undo(cause error) error {
	err := ioError("create object", l.prefix, cause)
	if !queue.Is(err, queue.KindFull) {
		l.pack.doubtful.Store(true)
	}
	if truncErr := l.f.Truncate(l.end); truncErr != nil {
		l.pack.doubtful.Store(true)
		return unknownOutcome("create object", l.prefix, errors.Join(cause, truncErr))
	}
	return err
}

// begin makes a new pack and syncs its header and its name, so that a pack with entries always has
// a sound header.
func (l *lane) begin() error {
	p := l.s.newPack(l.prefix)
	f, err := l.s.disk.Open(p.name(), true)
	if err != nil {
		return ioError("create pack", p.name(), err)
	}
	l.s.written.Add(packHeader)
	_, err = f.WriteAt(p.packInfo.encode(), 0)
	if err == nil {
		err = l.s.sync(f)
	}
	if err == nil {
		err = l.s.syncDir(packsDir)
	}
	if err != nil {
		// A pack without entries holds nothing; what remains of it is removed by the next load.
		return ioError("create pack", p.name(), errors.Join(err, f.Close(), l.s.disk.Remove(p.name())))
	}
	l.pack, l.f, l.end = p, f, packHeader
	l.s.addPack(p)
	return nil
}

// inPlace refuses to write to a pack that the next start would not find. The pack ends; the next group
// tries to begin a new one where it should be.
func (l *lane) inPlace() error {
	name := l.pack.name()
	found, err := l.s.disk.InPlace(name, l.f)
	if err != nil {
		return ioError("create object", name, err)
	}
	if found {
		return nil
	}
	l.retire()
	return &queue.Error{
		Op: "create object", Subject: name, Kind: queue.KindUnavailable,
		Message: "the file was moved, removed or replaced while the server uses it: put it back, or restart the server",
	}
}

// retire ends the open pack.
func (l *lane) retire() {
	p := l.pack
	// All that counts is synced, and a failing close says nothing about that.
	_ = l.f.Close()
	l.pack, l.f, l.end = nil, nil, 0
	l.s.seal(p)
}

// close runs after all writers have ended.
func (l *lane) close() error {
	if l.f == nil {
		return nil
	}
	err := l.f.Close()
	l.f, l.pack = nil, nil
	return err
}
