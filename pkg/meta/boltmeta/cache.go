package boltmeta

import (
	"container/list"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/pkg/meta"
)

// cache keeps decoded heads and cursors, least recently used out first. What is in it is published.
//
// A reader that missed may put in what it read from the file, but not if anything was published since
// before it read (generation):
//
//	reader reads head v1 from the file … committer publishes v2 … reader puts v1 in: lost update
//
// In the other order (put, then publish) the publication overwrites the entry.
type cache struct {
	mu         sync.Mutex // guards all of it
	limit      int
	used       int
	entries    map[meta.Key]*list.Element
	order      *list.List // of *cached; most recently used in front
	generation uint64
	hits       uint64
	misses     uint64
}

type cached struct {
	key  meta.Key
	item meta.Item
	cost int
}

func newCache(limit int) *cache {
	return &cache{limit: limit, entries: make(map[meta.Key]*list.Element), order: list.New()}
}

// cacheable reports whether the record under key is of a kind that is changed over and over.
func cacheable(key meta.Key) bool {
	return key.SK == "head" && strings.HasPrefix(key.PK, "s/") || key.SK == "cursor" && strings.HasPrefix(key.PK, "c/")
}

// costOf estimates what a decoded record takes: a ref is about four times its stored form.
func costOf(item *meta.Item) int { return 256 + 4*item.Size }

// get also tells the generation, for fill.
func (c *cache) get(key meta.Key) (item meta.Item, generation uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		c.misses++
		return meta.Item{}, c.generation, false
	}
	c.hits++
	c.order.MoveToFront(e)
	return e.Value.(*cached).item, c.generation, true
}

// fill puts in what was read from the file after get told that generation.
func (c *cache) fill(key meta.Key, item meta.Item, generation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation == generation {
		c.put(key, item)
	}
}

// publish puts in what a commit made durable; a nil item is a record that it removed.
func (c *cache) publish(o *overlay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	for key, sl := range o.slots {
		switch {
		case !cacheable(key):
		case sl.item == nil:
			c.drop(c.entries[key])
		default:
			c.put(key, *sl.item)
		}
	}
}

// reset forgets everything.
func (c *cache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	c.used = 0
	clear(c.entries)
	c.order.Init()
}

func (c *cache) counts() (hits, misses uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hits, c.misses
}

func (c *cache) put(key meta.Key, item meta.Item) {
	cost := costOf(&item)
	if e := c.entries[key]; e != nil {
		have := e.Value.(*cached)
		c.used += cost - have.cost
		have.item, have.cost = item, cost
		c.order.MoveToFront(e)
	} else {
		c.entries[key] = c.order.PushFront(&cached{key, item, cost})
		c.used += cost
	}
	for c.used > c.limit && c.order.Len() > 0 {
		c.drop(c.order.Back())
	}
}

func (c *cache) drop(e *list.Element) {
	if e == nil {
		return
	}
	have := e.Value.(*cached)
	c.order.Remove(e)
	delete(c.entries, have.key)
	c.used -= have.cost
}
