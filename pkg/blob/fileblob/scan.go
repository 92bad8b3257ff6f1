package fileblob

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/spillway-mq/spillway/pkg/blob"
)

// scanner walks over the entry headers of a pack. Where no sound header stands it looks for the next
// one: a damaged header hides its own entry and no other, and the salt keeps bytes of a message from
// being taken for one.
type scanner struct {
	f      file
	salt   *[saltBytes]byte
	pos    int64 // of the next header
	limit  int64
	window []byte
	start  int64 // of window in the pack
	dense  bool  // entries are small: read ahead
}

const (
	scanWindow = 64 << 10
	// scanDense is the stride below which reading many headers at once is cheaper than each.
	scanDense = 8 << 10
)

// next gives the next entry, deleted ones too; ok is false at the end.
func (sc *scanner) next() (e entry, ok bool, err error) {
	for sc.pos+entryHeader <= sc.limit {
		header, err := sc.header()
		if err != nil {
			return entry{}, false, err
		}
		e, ok = decodeEntry(header, sc.pos, sc.salt)
		if ok && sc.pos+stride(e.size) <= sc.limit {
			sc.pos += stride(e.size)
			sc.dense = stride(e.size) < scanDense
			return e, true, nil
		}
		sc.pos += entryAlign
		sc.dense = true
	}
	return entry{}, false, nil
}

func (sc *scanner) header() ([]byte, error) {
	if sc.pos < sc.start || sc.pos+entryHeader > sc.start+int64(len(sc.window)) {
		size := int64(entryHeader)
		if sc.dense {
			size = min(scanWindow, sc.limit-sc.pos)
		}
		if int64(cap(sc.window)) < size {
			sc.window = make([]byte, size)
		}
		sc.window = sc.window[:size]
		sc.start = sc.pos
		if _, err := sc.f.ReadAt(sc.window, sc.pos); err != nil {
			sc.window = sc.window[:0]
			return nil, err
		}
	}
	at := sc.pos - sc.start
	return sc.window[at : at+entryHeader], nil
}

func (s *Store) countLive(p *pack, h *handle) (int64, error) {
	sc := scanner{f: h.f, salt: &p.salt, pos: packHeader, limit: p.limit.Load()}
	var live int64
	for {
		e, ok, err := sc.next()
		if err != nil {
			return 0, ioError("scan pack", p.name(), err)
		}
		if !ok {
			return live, nil
		}
		if !e.deleted {
			live++
		}
	}
}

// stream gives objects in key order.
type stream interface {
	// next gives the next object; ok is false at the end.
	next() (info blob.Info, ok bool, err error)
	close()
}

// packStream lists the packs of one prefix, one open at a time.
type packStream struct {
	s      *Store
	packs  []*pack // in order of seq
	prefix string
	after  string
	h      *handle
	sc     scanner
	// whole and live count the pack under way, if it is walked from its start.
	whole bool
	live  int64
}

func (ps *packStream) close() {
	if ps.h != nil {
		ps.h.release()
		ps.h = nil
	}
}

func (ps *packStream) next() (blob.Info, bool, error) {
	for {
		if ps.h == nil {
			if ok, err := ps.advance(); !ok || err != nil {
				return blob.Info{}, false, err
			}
		}
		p := ps.packs[0]
		e, ok, err := ps.sc.next()
		if err != nil {
			return blob.Info{}, false, ioError("list objects", p.name(), err)
		}
		if !ok {
			ps.finish(p)
			continue
		}
		if e.deleted {
			continue
		}
		ps.live++
		if key := p.key(&e); key > ps.after && strings.HasPrefix(key, ps.prefix) {
			return e.info(key), true, nil
		}
	}
}

// finish ends a pack. One that a crash kept from being removed after its last deletion is found
// here, since nobody will delete anything of it again.
func (ps *packStream) finish(p *pack) {
	ps.close()
	ps.packs = ps.packs[1:]
	if !ps.whole || ps.live > 0 {
		return
	}
	p.mu.Lock()
	if p.live == liveUnknown {
		p.live = 0
	}
	p.mu.Unlock()
	ps.s.reclaim(p)
}

// advance opens the next pack that may hold keys after ps.after.
func (ps *packStream) advance() (bool, error) {
	for ; len(ps.packs) > 0; ps.packs = ps.packs[1:] {
		p := ps.packs[0]
		from := int64(packHeader)
		if loc, ok := parseLocation(ps.after); ok && loc.prefix == p.prefix {
			if loc.seq > p.seq {
				continue
			}
			// A real key is the start of an entry: the listing goes on behind it.
			if loc.seq == p.seq && loc.genuine(&p.salt) {
				from = loc.pos + stride(loc.size)
			}
		}
		h, err := ps.s.handles.acquire(p.seq)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, ioError("list objects", p.name(), err)
		}
		ps.h, ps.live, ps.whole = h, 0, from == packHeader
		ps.sc = scanner{f: h.f, salt: &p.salt, pos: from, limit: p.limit.Load(), window: ps.sc.window[:0]}
		return true, nil
	}
	return false, nil
}
