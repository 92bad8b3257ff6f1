package fileblob

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// List implements blob.Store. Packs are walked header by header and go on where the last page ended;
// for object files every name in the folder is looked at, once per page. Memory is bounded by limit
// and by the names of one of 256 folders.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) (blob.Page, error) {
	if err := blob.ValidateLimit(limit); err != nil {
		return blob.Page{}, err
	}
	done, err := s.begin(ctx, "list objects", prefix)
	if err != nil {
		return blob.Page{}, err
	}
	defer done()
	m := merger{}
	defer m.close()
	for _, st := range s.streams(prefix, after, limit) {
		if err := m.add(st); err != nil {
			return blob.Page{}, err
		}
	}
	var page blob.Page
	for {
		info, ok, err := m.next()
		if err != nil {
			return blob.Page{}, err
		}
		if !ok {
			return page, nil
		}
		if len(page.Objects) == limit {
			page.More = true
			return page, nil
		}
		page.Objects = append(page.Objects, info)
		if err := blob.Canceled(ctx, "list objects", prefix); err != nil {
			return blob.Page{}, err
		}
	}
}

func (s *Store) streams(prefix, after string, limit int) []stream {
	streams := []stream{&fileStream{s: s, prefix: prefix, after: after, window: limit + 1, full: true}}
	packs := s.packsUnder(prefix)
	for len(packs) > 0 {
		n := 1
		for n < len(packs) && packs[n].prefix == packs[0].prefix {
			n++
		}
		streams = append(streams, &packStream{s: s, packs: packs[:n], prefix: prefix, after: after})
		packs = packs[n:]
	}
	return streams
}

// merger merges streams; they are few, so it looks at all heads.
type merger struct {
	streams []stream
	heads   []blob.Info
}

func (m *merger) add(st stream) error {
	info, ok, err := st.next()
	if err != nil || !ok {
		st.close()
		return err
	}
	m.streams = append(m.streams, st)
	m.heads = append(m.heads, info)
	return nil
}

func (m *merger) next() (blob.Info, bool, error) {
	if len(m.heads) == 0 {
		return blob.Info{}, false, nil
	}
	least := 0
	for i := range m.heads {
		if m.heads[i].Key < m.heads[least].Key {
			least = i
		}
	}
	info := m.heads[least]
	head, ok, err := m.streams[least].next()
	if err != nil {
		return blob.Info{}, false, err
	}
	if ok {
		m.heads[least] = head
	} else {
		m.streams[least].close()
		m.streams = slices.Delete(m.streams, least, least+1)
		m.heads = slices.Delete(m.heads, least, least+1)
	}
	return info, true, nil
}

func (m *merger) close() {
	for _, st := range m.streams {
		st.close()
	}
}

// fileStream lists object files by windows: the smallest keys after the last one given.
type fileStream struct {
	s      *Store
	prefix string
	after  string
	window int
	keys   []string
	full   bool // the last window was full, so there may be more after it
}

func (fst *fileStream) close() {}

func (fst *fileStream) next() (blob.Info, bool, error) {
	for {
		if len(fst.keys) == 0 {
			if !fst.full {
				return blob.Info{}, false, nil
			}
			if err := fst.fill(); err != nil {
				return blob.Info{}, false, err
			}
			continue
		}
		key := fst.keys[0]
		fst.keys, fst.after = fst.keys[1:], key
		info, err := fst.s.headFile(key)
		if queue.Is(err, queue.KindNotFound) {
			continue // deleted since its name was read
		}
		if queue.Is(err, queue.KindCorrupt) {
			// Listed with what is known, so that it can be found, read with an error, and deleted.
			return blob.Info{Key: key}, true, nil
		}
		return info, err == nil, err
	}
}

func (fst *fileStream) fill() error {
	var keys []string
	for shard := range 256 {
		dir := shardDir(byte(shard)) // #nosec G115 -- below 256
		names, err := fst.s.disk.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return ioError("list objects", dir, err)
		}
		for _, name := range names {
			if key := fst.s.listedKey(dir, name); key > fst.after && strings.HasPrefix(key, fst.prefix) {
				keys = append(keys, key)
			}
		}
		if len(keys) > 2*fst.window {
			keys = smallest(keys, fst.window)
		}
	}
	fst.keys = smallest(keys, fst.window)
	fst.full = len(fst.keys) == fst.window
	return nil
}

func smallest(keys []string, n int) []string {
	slices.Sort(keys)
	return keys[:min(n, len(keys))]
}

// listedKey is the key of a file; "" for strangers and for files whose footer, the only place of a
// long key, cannot be read.
func (s *Store) listedKey(dir, name string) string {
	key, hashed := keyOfName(name)
	if !hashed {
		return key
	}
	f, info, err := s.openNamed("list objects", dir+"/"+name)
	if err != nil {
		return ""
	}
	_ = f.Close() // only read
	return info.Key
}
