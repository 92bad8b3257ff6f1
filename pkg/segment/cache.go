package segment

import (
	"cmp"
	"container/list"
	"slices"
	"strconv"
	"sync"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// cache keeps what cannot change (pages, batches, indexes) within a bound of bytes, least recently
// used out first, and for each segment the greatest TailFirst seen.
type cache struct {
	mu    sync.Mutex // guards all below
	limit int64
	used  int64
	order *list.List // of *entry, most recently used first
	byKey map[string]*list.Element
	// pages finds a cached page by any offset of it: each segment's pages, ascending.
	pages map[queue.SegmentID][]*list.Element
	tails map[queue.SegmentID]queue.Offset
}

type entry struct {
	key  string
	data []byte
	page *meta.RefPage
	size int64
}

const (
	// entryOverhead is about what an entry costs besides its bytes.
	entryOverhead = 200
	// maxTails bounds the segments whose TailFirst is remembered; losing one costs a read.
	maxTails = 10_000
)

func newCache(limit int64) *cache {
	return &cache{
		limit: limit, order: list.New(), byKey: make(map[string]*list.Element),
		pages: make(map[queue.SegmentID][]*list.Element),
		tails: make(map[queue.SegmentID]queue.Offset),
	}
}

func cacheKey(ref *meta.Ref, what byte) string {
	return string(what) + ref.Object + "@" + strconv.FormatInt(ref.Pos, 10)
}

func (c *cache) noteTail(h *meta.Head) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.tails[h.Segment]; ok && old >= h.TailFirst {
		return
	}
	if len(c.tails) >= maxTails {
		clear(c.tails)
	}
	c.tails[h.Segment] = h.TailFirst
}

func (c *cache) tailFirst(id queue.SegmentID) queue.Offset {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tails[id]
}

func (c *cache) bytes(key string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byKey[key]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(el)
	return entryOf(el).data, true
}

func (c *cache) putBytes(key string, data []byte) {
	c.put(&entry{key: key, data: data, size: int64(cap(data)) + entryOverhead})
}

func (c *cache) page(id queue.SegmentID, offset queue.Offset) *meta.RefPage {
	c.mu.Lock()
	defer c.mu.Unlock()
	pages := c.pages[id]
	i, exact := findPage(pages, offset)
	if !exact {
		i-- // the one that starts below
	}
	if i < 0 || offset >= entryOf(pages[i]).page.Next() {
		return nil
	}
	c.order.MoveToFront(pages[i])
	return entryOf(pages[i]).page
}

func findPage(pages []*list.Element, first queue.Offset) (int, bool) {
	return slices.BinarySearchFunc(pages, first, func(el *list.Element, off queue.Offset) int {
		return cmp.Compare(entryOf(el).page.First, off)
	})
}

func (c *cache) putPage(p *meta.RefPage, size int) {
	// In memory a ref takes several times its encoded size.
	const blowUp = 4
	c.put(&entry{key: "p" + p.Key().String(), page: p, size: int64(blowUp*size) + entryOverhead})
}

func (c *cache) put(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[e.key]; ok || e.size > c.limit/4 {
		return // a single large batch must not turn everything else out
	}
	el := c.order.PushFront(e)
	c.byKey[e.key] = el
	if e.page != nil {
		pages := c.pages[e.page.Segment]
		i, _ := findPage(pages, e.page.First)
		c.pages[e.page.Segment] = slices.Insert(pages, i, el)
	}
	for c.used += e.size; c.used > c.limit; {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(el *list.Element) {
	e := entryOf(el)
	c.order.Remove(el)
	delete(c.byKey, e.key)
	c.used -= e.size
	if e.page != nil {
		pages := c.pages[e.page.Segment]
		if i, ok := findPage(pages, e.page.First); ok {
			pages = slices.Delete(pages, i, i+1)
		}
		c.pages[e.page.Segment] = pages
		if len(pages) == 0 {
			delete(c.pages, e.page.Segment)
		}
	}
}

func entryOf(el *list.Element) *entry {
	e, _ := el.Value.(*entry) // the list holds nothing else
	return e
}
