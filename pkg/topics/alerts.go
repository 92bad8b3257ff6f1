package topics

import (
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// alertEvery is how long a topic is not alerted again by one process; alertPressed where the first
	// alert was of load alone and the store refuses now.
	alertEvery   = 20 * time.Second
	alertPressed = 5 * time.Second
	// alertTimeout bounds the write: a commit waits for it.
	alertTimeout = 2 * time.Second
	// maxAlerts bounds the topics that are remembered; forgetting costs a write.
	maxAlerts = 10_000
)

// alerts is when each topic was last alerted. Safe for concurrent use.
type alerts struct {
	mu   sync.Mutex // guards last
	last map[queue.TopicID]time.Time
}

// due reports whether an alert is to be sent now, and takes note of it.
func (a *alerts) due(id queue.TopicID, now time.Time, pressed bool) bool {
	wait := alertEvery
	if pressed {
		wait = alertPressed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if last, ok := a.last[id]; ok && now.Sub(last) < wait {
		return false
	}
	if a.last == nil || len(a.last) >= maxAlerts {
		a.last = make(map[queue.TopicID]time.Time)
	}
	a.last[id] = now
	return true
}
