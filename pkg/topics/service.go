package topics

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// defaultCacheTTL bounds how old a Map from the cache may be.
	defaultCacheTTL = 2 * time.Second
	// defaultCacheTopics bounds the topics in the cache.
	defaultCacheTopics = 1024
	// maxTries bounds how often a compare-and-swap starts anew. Each lost round means that another
	// writer made progress, so this many in a row mean a topic that too many people edit at once.
	maxTries = 16
	// headReaders bounds the heads that one call reads at the same time.
	headReaders = 16
)

// Deps are what a Service stands on. Meta, IDs and Clock are required.
type Deps struct {
	Meta  meta.Store
	IDs   *queue.IDs
	Clock queue.Clock
	// CacheTTL is how old a Map from the cache may be; 0 means 2 s.
	CacheTTL time.Duration
	// CacheTopics is how many topics the cache holds; 0 means 1,024.
	CacheTopics int
	// Targets are for topics that set none; the zero value means CloudTargets.
	Targets Targets
	// Wake tells the leader that there is something to look at; a commit waits for it. Nil where the
	// leader runs by its schedule alone.
	Wake func()
}

// Service makes, changes, finds and deletes topics and subscriptions. Safe for concurrent use. It
// keeps nothing but a cache.
type Service struct {
	meta  meta.Store
	ids   *queue.IDs
	clock queue.Clock
	cache *cache

	targets Targets
	wake    func()
	alerts  alerts
}

// New makes a Service.
func New(d Deps) *Service {
	if d.CacheTTL <= 0 {
		d.CacheTTL = defaultCacheTTL
	}
	if d.CacheTopics <= 0 {
		d.CacheTopics = defaultCacheTopics
	}
	if d.Targets == (Targets{}) {
		d.Targets = CloudTargets()
	}
	return &Service{
		targets: d.Targets, wake: d.Wake,
		meta: d.Meta, ids: d.IDs, clock: d.Clock,
		cache: newCache(d.Clock, d.CacheTTL, d.CacheTopics),
	}
}

// Open finds a topic by name. A Map from the cache, at most the cache's TTL old, costs no store call;
// a miss costs two reads, and callers that miss together share them. Absence is not remembered.
//
// Errors: NotFound with CodeTopicNotFound, also while the topic is being deleted; Invalid (field
// "topic") for what cannot be a name; the store's.
func (s *Service) Open(ctx context.Context, name string) (*Map, error) {
	if m := s.cache.get(name); m != nil {
		return m, nil
	}
	if err := queue.ValidateTopicName("topic", name); err != nil {
		return nil, err
	}
	return s.cache.join(ctx, name, s.load)
}

// Reload is Open past the cache: what it answers was read after the call began. Callers that reload
// one topic at the same time share a read.
func (s *Service) Reload(ctx context.Context, name string) (*Map, error) {
	if err := queue.ValidateTopicName("topic", name); err != nil {
		return nil, err
	}
	return s.cache.joinFresh(ctx, name, s.load)
}

func notFound(op, name string, cause error) error {
	return &queue.Error{
		Op: op, Subject: name, Kind: queue.KindNotFound, Code: queue.CodeTopicNotFound,
		Message: "no topic has that name", Err: cause,
	}
}

// tooBusy ends a call whose every try met others, or, where unknown is set, one that may have taken effect.
func tooBusy(op, subject string, unknown bool) error {
	if unknown {
		return &queue.Error{Op: op, Subject: subject, Kind: queue.KindOutcomeUnknown, Message: "the store did not say whether it was done"}
	}
	return &queue.Error{
		Op: op, Subject: subject, Kind: queue.KindConflict,
		Message: "others keep changing it; try again",
	}
}
