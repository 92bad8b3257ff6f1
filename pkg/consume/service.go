package consume

import (
	"context"
	"encoding/binary"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
	"github.com/spillway-mq/spillway/pkg/turn"
)

// Topics finds topics by name; *topics.Service is one.
type Topics interface {
	// Open may answer from a cache.
	Open(ctx context.Context, name string) (*topics.Map, error)
	// Reload reads the store.
	Reload(ctx context.Context, name string) (*topics.Map, error)
}

// Promoter moves delayed messages that are due into their segments.
type Promoter interface {
	// Promote says how many it moved and when the next one is due; next is 0 for none.
	Promote(ctx context.Context, m *topics.Map, now queue.Millis) (promoted int, next queue.Millis, err error)
}

// Deps are what a Service stands on. Those before Logger are required.
type Deps struct {
	Meta      meta.Store
	Presigner blob.Presigner
	Log       *segment.Log
	Topics    Topics
	Delay     Promoter
	Hub       *notify.Hub
	IDs       *queue.IDs
	Clock     queue.Clock

	// Logger hears of unreadable payloads and of dead letters that cannot move; nil drops it.
	Logger *slog.Logger
	// HeadMaxAge bounds how long rolled messages are claimed without reading their segment's
	// head, and with it how long a truncation by another process stays unseen; 0 means 2 s.
	HeadMaxAge time.Duration
	// MaxInlineBytes bounds the bodies of one inline answer where the way to the caller is narrow
	// (Lambda: 6 MB); a larger body goes by reference. 0 means queue.MaxClaimBytes.
	MaxInlineBytes int64
}

const (
	// A long poll that hears no signal finds what other processes did by looking. The pauses between its looks
	// double from pollFirst to pollShare for each open segment, as each is read, and to pollMax at most. On Lambda
	// the reads of a consumer that waits so stay well below the price of the time that it waits (docs/cost.md).
	pollFirst = 100 * time.Millisecond
	pollShare = 500 * time.Millisecond
	pollMax   = 5 * time.Second

	defaultHeadMaxAge = 2 * time.Second
	// maxTries bounds how often one update of a cursor is tried again.
	maxTries = 10
	// workers bounds the store calls that one call makes at the same time.
	workers = 8
	// cleanupTimeout bounds the work that is done for a caller who has gone away.
	cleanupTimeout = 5 * time.Second
	// answerTime is what a long poll leaves of its caller's time for the last look and the answer.
	answerTime = 500 * time.Millisecond
)

// Service hands messages out. Safe for concurrent use. It keeps nothing but what the store confirms:
// lower bounds of what only grows, and the locks of the cursors that it works on at the moment.
type Service struct {
	meta    meta.Store
	presign blob.Presigner
	log     *segment.Log
	topics  Topics
	delay   Promoter
	hub     *notify.Hub
	ids     *queue.IDs
	clock   queue.Clock
	logger  *slog.Logger

	headMaxAge time.Duration
	maxInline  int64

	cursors *turn.Turns[cursorID]
	known   *knowledge
	keys    *keyring
}

// New makes a Service.
func New(d Deps) *Service {
	s := &Service{
		meta: d.Meta, presign: d.Presigner, log: d.Log, topics: d.Topics, delay: d.Delay, hub: d.Hub,
		ids: d.IDs, clock: d.Clock, logger: d.Logger,
		maxInline:  orDefault(d.MaxInlineBytes, queue.MaxClaimBytes),
		headMaxAge: orDefault(d.HeadMaxAge, defaultHeadMaxAge),
		cursors:    turn.New[cursorID](), known: newKnowledge(), keys: newKeyring(),
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	return s
}

func orDefault[T ~int64](v, byDefault T) T {
	if v <= 0 {
		return byDefault
	}
	return v
}

// subscription finds a topic and its subscription. One that the cached map does not know may be new,
// so the map is read again before it is said to be absent.
func (s *Service) subscription(ctx context.Context, topic, name string) (*topics.Map, *meta.Subscription, error) {
	m, err := s.topics.Open(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	if sub := m.Subscriptions[name]; sub != nil {
		return m, sub, nil
	}
	if err := queue.ValidateSubscriptionName("subscription", name); err != nil {
		return nil, nil, err
	}
	if m, err = s.topics.Reload(ctx, topic); err != nil {
		return nil, nil, err
	}
	if sub := m.Subscriptions[name]; sub != nil {
		return m, sub, nil
	}
	return nil, nil, noSubscription(name)
}

func noSubscription(name string) error {
	return &queue.Error{
		Op: "open subscription", Subject: name, Kind: queue.KindNotFound, Code: queue.CodeSubscriptionNotFound,
		Message: "the topic has no subscription of that name",
	}
}

// segment finds a segment of a topic, in the store if the map does not know it yet; nil if the topic
// has none of that id.
func (s *Service) segment(ctx context.Context, m *topics.Map, id queue.SegmentID) (*meta.Segment, error) {
	if seg := m.Segment(id); seg != nil {
		return seg, nil
	}
	m, err := s.topics.Reload(ctx, m.Name)
	if err != nil {
		return nil, err
	}
	return m.Segment(id), nil
}

// cursor reads a cursor; nil if there is none yet.
func (s *Service) cursor(ctx context.Context, sub queue.SubscriptionID, seg queue.SegmentID) (*meta.Cursor, error) {
	cur, _, err := meta.Fetch[*meta.Cursor](ctx, s.meta, meta.CursorKey(sub, seg))
	if queue.Is(err, queue.KindNotFound) {
		return nil, nil
	}
	return cur, err
}

// random is a number in [0, n).
func (s *Service) random(n int) int {
	if n <= 1 {
		return 0
	}
	nonce := s.ids.Nonce()
	return int(binary.BigEndian.Uint64(nonce[:8]) % uint64(n)) // #nosec G115 -- below n
}

func canceled(ctx context.Context, op string) error {
	return &queue.Error{Op: op, Kind: queue.KindCanceled, Err: context.Cause(ctx)}
}

// pause waits before a store is asked again; it reports false if ctx ended first.
func pause(ctx context.Context, try int) bool {
	return queue.Backoff{First: 5 * time.Millisecond, Last: 100 * time.Millisecond}.Wait(ctx, try, nil) == nil
}

// cursorIn is the cursor that a refused op found; nil if there was none.
func cursorIn(r *meta.Refused) *meta.Cursor {
	if r.Current == nil {
		return nil
	}
	cur, _ := r.Current.Record.(*meta.Cursor)
	return cur
}
