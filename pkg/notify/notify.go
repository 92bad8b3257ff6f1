// Package notify wakes long polls: whoever makes messages of a topic claimable says so, and whoever
// waits for them hears it at once, without polling the store.
//
// A Hub reaches only its own process. That is all a single server needs; where several processes
// share a store, waiters also look again after a pause (pkg/consume), so a lost or foreign signal
// costs latency, never a message.
//
// Non-goals: delivery guarantees, payloads, crossing processes.
package notify

import (
	"sync"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Hub passes signals within one process. The zero value is not usable; make it with NewHub. Safe for
// concurrent use.
type Hub struct {
	mu     sync.Mutex // guards topics
	topics map[queue.TopicID]*waiters
	closed chan struct{}
	once   sync.Once
}

type waiters struct {
	ch    chan struct{}
	count int
}

// NewHub makes a hub without waiters.
func NewHub() *Hub {
	return &Hub{topics: make(map[queue.TopicID]*waiters), closed: make(chan struct{})}
}

// Close ends all waits, present and future: a server that stops lets its long polls go, with what they
// have, before it waits for its calls to end.
func (h *Hub) Close() { h.once.Do(func() { close(h.closed) }) }

// Closed is closed by Close. Whoever waits on a channel of Wait waits on this one, too, and then waits
// no more.
func (h *Hub) Closed() <-chan struct{} { return h.closed }

// Wait returns a channel that is closed by the next Signal of the topic, and a function that must be
// called once when the caller waits no longer. To miss nothing, call Wait, then look, then receive.
func (h *Hub) Wait(topic queue.TopicID) (<-chan struct{}, func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.topics[topic]
	if w == nil {
		w = &waiters{ch: make(chan struct{})}
		h.topics[topic] = w
	}
	w.count++
	var once sync.Once
	return w.ch, func() { once.Do(func() { h.leave(topic, w) }) }
}

func (h *Hub) leave(topic queue.TopicID, w *waiters) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.count--; w.count == 0 && h.topics[topic] == w {
		delete(h.topics, topic)
	}
}

// Signal wakes all who wait for the topic. It costs next to nothing where nobody does.
func (h *Hub) Signal(topic queue.TopicID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.topics[topic]; w != nil {
		close(w.ch)
		delete(h.topics, topic)
	}
}
