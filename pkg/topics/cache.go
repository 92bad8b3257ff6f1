package topics

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/turn"
)

// cache holds the Maps used last. A Map enters it only if nobody dropped its name since before it
// was read: otherwise a slow load that began before a change could hide the change for a TTL.
type cache struct {
	clock queue.Clock
	ttl   time.Duration
	limit int

	mu      sync.Mutex // guards what follows
	entries map[string]*list.Element
	order   *list.List // of *cached, the one used last in front
	drops   uint64     // how often anything was dropped

	loads singleflight.Group
	// reloads are apart from loads, so that a reload never shares a read that began before it.
	reloads singleflight.Group
	turns   *turn.Turns[string]
}

type cached struct {
	name    string
	m       *Map
	expires time.Time
}

// loadTimeout bounds a load that several callers share, and that therefore no caller's context ends.
const loadTimeout = queue.CommitTimeout

type loadFunc func(ctx context.Context, name string) (*Map, error)

func newCache(clock queue.Clock, ttl time.Duration, limit int) *cache {
	return &cache{
		clock: clock, ttl: ttl, limit: limit,
		entries: make(map[string]*list.Element), order: list.New(),
		turns: turn.New[string](),
	}
}

// get finds a Map that is not too old; nil if there is none.
func (c *cache) get(name string) *Map {
	now := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[name]
	if e == nil {
		return nil
	}
	found, _ := e.Value.(*cached)
	if !now.Before(found.expires) {
		c.remove(e)
		return nil
	}
	c.order.MoveToFront(e)
	return found.m
}

// drop forgets a name, and refuses whatever is being loaded now.
func (c *cache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops++
	if e := c.entries[name]; e != nil {
		c.remove(e)
	}
}

func (c *cache) remove(e *list.Element) {
	gone, _ := c.order.Remove(e).(*cached)
	delete(c.entries, gone.name)
}

func (c *cache) dropped() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drops
}

// put takes a Map in that was read when drops was as given, at the time at or later.
func (c *cache) put(m *Map, drops uint64, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drops != drops {
		return
	}
	if e := c.entries[m.Name]; e != nil {
		c.remove(e)
	}
	c.entries[m.Name] = c.order.PushFront(&cached{m.Name, m, at.Add(c.ttl)})
	for c.order.Len() > c.limit {
		c.remove(c.order.Back())
	}
}

// join loads a name, together with all who want the same at the moment.
func (c *cache) join(ctx context.Context, name string, load loadFunc) (*Map, error) {
	if ctx.Err() != nil {
		return nil, gone(ctx, name) // nobody waits for what it would read
	}
	return await(ctx, name, c.loads.DoChan(name, func() (any, error) {
		return c.fill(ctx, name, load)
	}))
}

// joinFresh loads a name, together with those who asked before the read began: a read under way is
// waited for, then one read serves all who came meanwhile.
func (c *cache) joinFresh(ctx context.Context, name string, load loadFunc) (*Map, error) {
	if ctx.Err() != nil {
		return nil, gone(ctx, name)
	}
	return await(ctx, name, c.reloads.DoChan(name, func() (any, error) {
		end, err := c.turns.Take(context.WithoutCancel(ctx), name) // others wait for this load
		if err != nil {
			return nil, err
		}
		defer end()
		c.reloads.Forget(name)
		return c.fill(ctx, name, load)
	}))
}

func (c *cache) fill(ctx context.Context, name string, load loadFunc) (*Map, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
	defer cancel()
	drops, at := c.dropped(), c.clock()
	m, err := load(ctx, name)
	if err != nil {
		if queue.Is(err, queue.KindNotFound) {
			c.drop(name)
		}
		if queue.Is(err, queue.KindCanceled) && ctx.Err() != nil {
			// The load's own time was up: whoever waits for it did not go away.
			err = &queue.Error{Op: "load topic", Subject: name, Kind: queue.KindUnavailable, Message: fmt.Sprintf("the table did not answer within %v", loadTimeout), Err: err}
		}
		return nil, err
	}
	c.put(m, drops, at)
	return m, nil
}

func await(ctx context.Context, name string, done <-chan singleflight.Result) (*Map, error) {
	select {
	case res := <-done:
		m, _ := res.Val.(*Map)
		return m, res.Err
	case <-ctx.Done():
		return nil, gone(ctx, name)
	}
}

func gone(ctx context.Context, name string) error {
	return &queue.Error{Op: "load topic", Subject: name, Kind: queue.KindCanceled, Err: context.Cause(ctx)}
}
