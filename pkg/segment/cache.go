package segment

import (
	"cmp"
	"container/list"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// cache keeps what cannot change (batches, indexes) and what seldom does (pages, for queue.PageTTL) within a bound of bytes, least recently
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
	// version and at are a page's: which it was, and when it was read.
	version meta.Version
	at      time.Time
	size    int64
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

func (c *cache) page(id queue.SegmentID, offset queue.Offset, now time.Time) (*meta.RefPage, meta.Version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.holds(id, offset)
	if el == nil {
		return nil, 0
	}
	e := entryOf(el)
	if now.Sub(e.at) >= queue.PageTTL {
		c.drop(el)
		return nil, 0
	}
	c.order.MoveToFront(el)
	return e.page, e.version
}

// holds finds the element of the page that holds offset; nil if there is none.
func (c *cache) holds(id queue.SegmentID, offset queue.Offset) *list.Element {
	pages := c.pages[id]
	i, exact := findPage(pages, offset)
	if !exact {
		i-- // the one that starts below
	}
	if i < 0 || offset >= entryOf(pages[i]).page.Next() {
		return nil
	}
	return pages[i]
}

func (c *cache) forget(id queue.SegmentID, offset queue.Offset) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if el := c.holds(id, offset); el != nil {
		c.drop(el)
	}
}

func findPage(pages []*list.Element, first queue.Offset) (int, bool) {
	return slices.BinarySearchFunc(pages, first, func(el *list.Element, off queue.Offset) int {
		return cmp.Compare(entryOf(el).page.First, off)
	})
}

// putPage takes the place of those cached pages that hold some of the same offsets: a page that was
// merged with its neighbours holds theirs, too.
func (c *cache) putPage(p *meta.RefPage, item *meta.Item, now time.Time) {
	c.mu.Lock()
	if el := c.holds(p.Segment, p.First); el != nil {
		c.drop(el)
	}
	for {
		pages := c.pages[p.Segment]
		i, _ := findPage(pages, p.First)
		if i == len(pages) || entryOf(pages[i]).page.First >= p.Next() {
			break
		}
		c.drop(pages[i])
	}
	c.mu.Unlock()
	// In memory a ref takes several times its encoded size.
	const blowUp = 4
	c.put(&entry{
		key: "p" + p.Key().String(), page: p, version: item.Version, at: now,
		size: int64(blowUp*item.Size) + entryOverhead,
	})
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
