// Package assembly puts the use cases together on whatever stores it is given: the same system, whether
// the stores are embedded (pkg/local), in AWS (functions) or simulated.
//
// Vocabulary: a system is one process's set of use cases over one pair of stores, with one clock, one
// source of ids, and caches of its own.
//
// Invariants: nothing here knows which drivers run; two systems on the same stores share nothing else.
//
// Non-goals: opening stores, listening, schedules, metrics registries.
package assembly

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/spillway-mq/spillway/docs"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/lag"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/segment"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Deps are what a system stands on. Meta, Blob and Presigner are required.
type Deps struct {
	Meta      meta.Store
	Blob      blob.Store
	Presigner blob.Presigner
	// IDs and Clock are random and time.Now unless given.
	IDs   *queue.IDs
	Clock queue.Clock
	// Logger hears what no caller is told; nil drops it.
	Logger *slog.Logger
	// CacheBytes is as in segment.Deps, MaxInlineBytes as in consume.Deps.
	CacheBytes     int64
	MaxInlineBytes int64
	// Targets and Wake are as in topics.Deps.
	Targets topics.Targets
	Wake    func()
	// Later is as in segment.Deps.
	Later func(work func())
	// Patience is as in scale.Deps.
	Patience time.Duration
	// Marked is for stores where a read costs money: this process marks that it appends (lag.Watch),
	// and goes by the marks of all. All processes on the stores must have it, or none.
	Marked bool
	// Compact tunes the compactor.
	Compact compact.Tuning
}

// System is the use cases of one process.
type System struct {
	Topics  *topics.Service
	Produce *produce.Service
	Consume *consume.Service
	Delay   *delay.Service
	Compact *compact.Service
	Scale   *scale.Service
	// Lag tells how long the oldest message waits.
	Lag *lag.Service
	// Hub wakes the system's long polls; closing it ends them.
	Hub *notify.Hub

	ids    *queue.IDs
	clock  queue.Clock
	logger *slog.Logger
}

// New assembles a system.
func New(d Deps) *System {
	if d.IDs == nil {
		d.IDs = queue.NewIDs(nil)
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	s := &System{Hub: notify.NewHub(), ids: d.IDs, clock: d.Clock, logger: d.Logger}
	var marks meta.Store
	if d.Marked {
		marks = d.Meta
		d.Meta = lag.Watch(d.Meta, d.IDs, d.Clock)
	}
	log := segment.New(segment.Deps{
		Meta: d.Meta, Blob: d.Blob, IDs: d.IDs, Clock: d.Clock, CacheBytes: d.CacheBytes, Later: d.Later,
	})
	s.Topics = topics.New(topics.Deps{Meta: d.Meta, IDs: d.IDs, Clock: d.Clock, Targets: d.Targets, Wake: d.Wake})
	s.Scale = scale.New(scale.Deps{
		Meta: d.Meta, Topics: s.Topics, Lease: lease.New(d.Meta, d.IDs, d.Clock), IDs: d.IDs, Clock: d.Clock, Logger: d.Logger,
		Patience: d.Patience,
	})
	s.Delay = delay.New(delay.Deps{
		Meta: d.Meta, Blob: d.Blob, Log: log, Topics: s.Topics, IDs: d.IDs, Clock: d.Clock, Hub: s.Hub,
	})
	s.Produce = produce.New(produce.Deps{
		Meta: d.Meta, Blob: d.Blob, Presigner: d.Presigner, Log: log, Topics: s.Topics, Hub: s.Hub,
		IDs: d.IDs, Clock: d.Clock,
	})
	s.Consume = consume.New(consume.Deps{
		Meta: d.Meta, Presigner: d.Presigner, Log: log, Topics: s.Topics, Delay: s.Delay, Hub: s.Hub,
		IDs: d.IDs, Clock: d.Clock, Logger: d.Logger, MaxInlineBytes: d.MaxInlineBytes,
	})
	s.Compact = compact.New(compact.Deps{
		Meta: d.Meta, Blob: d.Blob, Lease: lease.New(d.Meta, d.IDs, d.Clock), IDs: d.IDs, Clock: d.Clock, Logger: d.Logger,
		Log:    segment.New(segment.Deps{Meta: d.Meta, Blob: d.Blob, IDs: d.IDs, Clock: d.Clock, CacheBytes: compactCacheBytes}),
		Tuning: d.Compact,
	})
	s.Lag = lag.New(lag.Deps{Topics: s.Topics, Backlogs: s.Consume, Clock: d.Clock, Meta: marks})
	return s
}

// compactCacheBytes is small: the compactor reads each batch once.
const compactCacheBytes = 1 << 20

// Handler is the whole HTTP API over the system. around gives what is not the system's: Token, Observe,
// Ready, Metrics, Objects and BaseURL.
func (s *System) Handler(around httpapi.Deps) http.Handler {
	around.Topics, around.Subscriptions = s.Topics, s.Topics
	around.Produce, around.Consume = s.Produce, s.Consume
	around.Reading, around.Delayed, around.Scale = s.Consume, s.Delay, s.Scale
	around.IDs, around.Clock, around.Logger, around.Spec = s.ids, s.clock, s.logger, docs.OpenAPI
	return httpapi.New(around)
}
