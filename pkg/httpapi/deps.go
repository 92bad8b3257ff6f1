package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/produce"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/scale"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Topics makes, changes and finds topics. *topics.Service is one.
type Topics interface {
	Create(ctx context.Context, name string, cfg topics.Config) (st topics.Status, created bool, err error)
	Update(ctx context.Context, name string, patch topics.Patch) (topics.Status, error)
	Delete(ctx context.Context, name string) error
	Status(ctx context.Context, name string) (topics.Status, error)
	List(ctx context.Context, prefix, cursor string, limit int) (page []topics.Listed, next string, err error)
}

// Subscriptions makes, changes and finds subscriptions. *topics.Service is one.
type Subscriptions interface {
	CreateSubscription(ctx context.Context, topic, name string, cfg topics.SubscriptionConfig) (sub *meta.Subscription, created bool, err error)
	UpdateSubscription(ctx context.Context, topic, name string, patch topics.SubscriptionPatch) (*meta.Subscription, error)
	DeleteSubscription(ctx context.Context, topic, name string) error
	Subscription(ctx context.Context, topic, name string) (*meta.Subscription, error)
	ListSubscriptions(ctx context.Context, topic, cursor string, limit int) (page []*meta.Subscription, next string, err error)
	Seek(ctx context.Context, topic, name string, start topics.Start) (*meta.Subscription, error)
}

// Produce takes messages in. *produce.Service is one.
type Produce interface {
	Produce(ctx context.Context, req produce.Request) (produce.Answer, error)
	ProduceBatch(ctx context.Context, req produce.BatchRequest) (produce.Answer, error)
	References(ctx context.Context, req produce.ReferencesRequest) (produce.Answer, error)
	Uploads(ctx context.Context, topic string, terms []blob.Terms) ([]produce.Upload, error)
}

// Consume hands messages out. *consume.Service is one. The slices of errors have one entry per
// receipt, nil where it succeeded.
type Consume interface {
	Claim(ctx context.Context, req consume.ClaimRequest) (consume.Claimed, error)
	Ack(ctx context.Context, topic, sub string, receipts []queue.Receipt) ([]error, error)
	Release(ctx context.Context, topic, sub string, receipts []queue.Receipt, how consume.Release) ([]error, error)
	Extend(ctx context.Context, topic, sub string, receipts []queue.Receipt, visibility time.Duration) ([]error, error)
}

// Reading shows messages without claiming them. *consume.Service is one.
type Reading interface {
	Peek(ctx context.Context, req consume.PeekRequest) (consume.Peeked, error)
	Message(ctx context.Context, topic string, id queue.MessageID) (consume.Delivery, error)
	Records(ctx context.Context, req consume.RecordsRequest) (consume.Records, error)
	Status(ctx context.Context, topic, sub string) (consume.Status, error)
}

// Delayed shows and changes messages that wait. *delay.Service is one.
type Delayed interface {
	List(ctx context.Context, topic string, l delay.Listing) (page []delay.Message, next string, err error)
	Get(ctx context.Context, topic string, id queue.DelayedID) (delay.Message, error)
	Edit(ctx context.Context, topic string, id queue.DelayedID, edit delay.Edit) (delay.Message, error)
	Cancel(ctx context.Context, topic string, id queue.DelayedID) error
	Count(ctx context.Context, topic string, limit int) (n int, more bool, err error)
}

// Scale shows and changes the segments of topics. *scale.Service is one.
type Scale interface {
	SegmentsPage(ctx context.Context, topic string, p scale.Page) (scale.View, error)
	Split(ctx context.Context, req scale.SplitRequest) (scale.Planned, error)
	Merge(ctx context.Context, req scale.MergeRequest) (scale.Planned, error)
	Events(ctx context.Context, topic, cursor string, limit int) (page []*meta.Event, next string, err error)
}

// Deps are what the handler stands on. The use cases, IDs and Clock are required.
type Deps struct {
	Topics        Topics
	Subscriptions Subscriptions
	Produce       Produce
	Consume       Consume
	Reading       Reading
	Delayed       Delayed
	Scale         Scale
	IDs           *queue.IDs
	Clock         queue.Clock

	// Logger gets one line per call: Debug for what went well, Info for what the caller did wrong,
	// Error for what the server did. Nil means none.
	Logger *slog.Logger
	// Token, if not empty, must come as "Authorization: Bearer <token>" with every call but
	// /healthz and those of signed object URLs.
	Token string
	// Observe, if not nil, is told of every call when it has been answered.
	Observe func(Observation)
	// Ready says whether the server can do its work; nil means that it always can.
	Ready func(ctx context.Context) error
	// Metrics serves GET /metrics; nil means that there are none.
	Metrics http.Handler
	// Objects serves signed object URLs, below /v1/objects/; nil means that there are none.
	Objects http.Handler
	// Spec is the text of GET /v1/openapi.yaml.
	Spec []byte
	// Patience is how long a caller may be silent while its body is awaited, or may leave its answer
	// untaken, before the call is given up; 0 means DefaultPatience.
	Patience time.Duration
	// BaseURL, such as "https://queue.example.com", completes presigned URLs that are paths; empty
	// means the scheme and host of the request.
	BaseURL string
}

// Observation is what a metrics hook is told of one call.
type Observation struct {
	// Route is the pattern, "/v1/topics/{topic}"; "other" for a path that is none.
	Route  string
	Method string
	Status int
	// Code is the error's; empty for a success.
	Code queue.Code
	// EntryFault: the call succeeded as a whole, but one of its entries failed by a fault of the server.
	EntryFault bool
	Duration   time.Duration
	// Received and Sent are the bytes of the bodies.
	Received, Sent int64
}
