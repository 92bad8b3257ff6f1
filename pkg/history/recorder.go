package history

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Open is the return of an operation whose answer nobody knows.
const Open = time.Duration(math.MaxInt64)

// Span is whose operation it is, and when it was called and returned, by the recorder's clock.
type Span struct {
	Client       int
	Call, Return time.Duration
}

func (s *Span) span() *Span { return s }

// spanned is an operation.
type spanned interface{ span() *Span }

// of is the span of what had an answer: unknown is open, whenever the client was told so.
func (s Span) of(a Answer) Span {
	if a == Unknown {
		s.Return = Open
	}
	return s
}

// Answer is what is known of an outcome.
type Answer uint8

// The answers. Unknown is the zero Answer.
const (
	// Unknown: it may have taken effect, or may yet.
	Unknown Answer = iota
	// OK: it took effect.
	OK
	// Refused: it was refused for the reason that its model knows (claim lost, fenced, exists, not found).
	Refused
	// Void: it was refused for a reason that says nothing; it took no effect.
	Void
)

// Produce is one produce call with all its tries.
type Produce struct {
	Span
	Topic    string
	Messages []Sent
}

// Sent is one message of a Produce. Body tells it from all others of its topic.
type Sent struct {
	Body string
	// MayGo: it may expire or be canceled.
	MayGo bool
	// Answer is OK with a place, Unknown with or without, or Void. A message that waits for its visible time
	// is Unknown.
	Answer Answer
	At     queue.MessageID
}

// Read is an answer that shows a run of a segment.
type Read struct {
	Span
	Topic   string
	Segment queue.SegmentID
	// It shows all there is in [From, Next).
	From, Next queue.Offset
	Seen       []Seen
	// AtEnd: it says that the segment ended at Next; Sealed: for good.
	AtEnd, Sealed bool
}

// Seen is a message that was read.
type Seen struct {
	Offset queue.Offset
	Body   string
}

// Claim is one claim call. It is Unknown unless all that it took was handed to the client.
type Claim struct {
	Span
	Topic, Subscription string
	// Hold is how long the claim was asked to hold.
	Hold   time.Duration
	Answer Answer
	Got    []Delivery
}

// Delivery is a message that a claim handed out.
type Delivery struct {
	ID      queue.MessageID
	Body    string
	Claim   queue.ClaimID
	Attempt uint32
	// Ends is until when the claim holds, by the recorder's clock; 0 takes Hold since the call.
	Ends time.Duration
	// MayEnd: the message may leave the subscription without an ack, as an expired message or a dead letter.
	MayEnd bool
}

// SettleKind is what a Settle does to claims.
type SettleKind uint8

// The kinds of a Settle.
const (
	Ack SettleKind = iota
	Release
	Extend
)

// Settle is one call that ends or extends claims.
type Settle struct {
	Span
	Topic, Subscription string
	Kind                SettleKind
	// For is how long released messages stay hidden, or extended ones are held.
	For time.Duration
	// Uncounted: this delivery does not count.
	Uncounted bool
	Receipts  []Settled
}

// Settled is one receipt of a Settle.
type Settled struct {
	ID     queue.MessageID
	Claim  queue.ClaimID
	Answer Answer
}

// Reset is a call after which a subscription may begin anew: a seek, a deletion, a creation.
type Reset struct {
	Span
	Topic, Subscription string
	Answer              Answer
}

// NameKind is what a Name does.
type NameKind uint8

// The kinds of a Name.
const (
	Create NameKind = iota
	Delete
	Get
	// List tells whether the name is in a listing. One that is being deleted may be.
	List
	// Clear deletes what the name is in, and with it whatever the name leads to: a topic with its subscriptions.
	Clear
)

// Name is one call about a name: it leads to one thing with an id at a time.
type Name struct {
	Span
	Name string
	Kind NameKind
	// Config is what a Create asked for.
	Config string
	// Answer is Refused for a Create that found another config, for a Delete and a Get that found nothing, and for a
	// Clear that did not find what the name is in. A List is OK.
	Answer Answer
	// ID is what a Create, Get or List answered; "" is a listing without the name.
	ID string
}

// LeaseKind is what a Lease does.
type LeaseKind uint8

// The kinds of a Lease.
const (
	Acquire LeaseKind = iota
	// Commit writes Value under the lease and renews it.
	Commit
	GiveUp
	// Trust is a holder's own view that it holds the lease.
	Trust
)

// Lease is one step of a keeper of leases.
type Lease struct {
	Span
	Name string
	Kind LeaseKind
	// Epoch is the lease's; 0 for an Acquire that did not get it.
	Epoch uint64
	// Value is what a Commit writes, or an Acquire found.
	Value  uint64
	TTL    time.Duration
	Answer Answer
}

// History is what was recorded. Its operations are not to be changed while one of them is pending.
type History struct {
	Produces []*Produce
	Reads    []*Read
	Claims   []*Claim
	Settles  []*Settle
	Resets   []*Reset
	Names    []*Name
	Leases   []*Lease
}

// Size is the number of operations.
func (h *History) Size() int {
	return len(h.Produces) + len(h.Reads) + len(h.Claims) + len(h.Settles) + len(h.Resets) + len(h.Names) + len(h.Leases)
}

// Recorder takes operations down as they begin and end. Safe for concurrent use.
type Recorder struct {
	clock func() time.Duration

	mu   sync.Mutex // guards what follows, and all operations that are pending
	last time.Duration
	h    History
}

// New makes a recorder. clock tells the time since the run began and never goes back; readings that are equal are
// taken for ones a nanosecond apart, in the order in which they were made.
func New(clock func() time.Duration) *Recorder { return &Recorder{clock: clock} }

// Pending is an operation that has begun.
type Pending[T any] struct {
	r  *Recorder
	op *T
}

// End notes that the operation returned. fill writes its answer. End is called once at most.
func (p *Pending[T]) End(fill func(op *T)) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	fill(p.op)
	if s, ok := any(p.op).(spanned); ok {
		s.span().Return = p.r.stamp()
	}
}

// Fill writes what is known by now of an operation that has not returned.
func (p *Pending[T]) Fill(fill func(op *T)) {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	fill(p.op)
}

func (r *Recorder) stamp() time.Duration {
	r.last = max(r.clock(), r.last+1)
	return r.last
}

func begin[T any](r *Recorder, list *[]*T, op *T) *Pending[T] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := any(op).(spanned); ok {
		s.span().Call, s.span().Return = r.stamp(), Open
	}
	*list = append(*list, op)
	return &Pending[T]{r, op}
}

// Produce notes that a call begins, as do the methods below; times are the recorder's.
func (r *Recorder) Produce(op Produce) *Pending[Produce] { return begin(r, &r.h.Produces, &op) }

// Claim is as Produce.
func (r *Recorder) Claim(op Claim) *Pending[Claim] { return begin(r, &r.h.Claims, &op) }

// Settle is as Produce.
func (r *Recorder) Settle(op Settle) *Pending[Settle] { return begin(r, &r.h.Settles, &op) }

// Reset is as Produce.
func (r *Recorder) Reset(op Reset) *Pending[Reset] { return begin(r, &r.h.Resets, &op) }

// Name is as Produce.
func (r *Recorder) Name(op Name) *Pending[Name] { return begin(r, &r.h.Names, &op) }

// Lease is as Produce.
func (r *Recorder) Lease(op Lease) *Pending[Lease] { return begin(r, &r.h.Leases, &op) }

// Now is the recorder's time: the Call of a Read.
func (r *Recorder) Now() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stamp()
}

// Read notes reads that have returned, called at the time that Now gave then. One that fails shows nothing and
// is not noted.
func (r *Recorder) Read(call time.Duration, ops ...Read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.stamp()
	for i := range ops {
		ops[i].Call, ops[i].Return = call, now
		r.h.Reads = append(r.h.Reads, &ops[i])
	}
}

// History gives what was recorded so far; whatever is pending is Open.
func (r *Recorder) History() *History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &History{
		Produces: copies(r.h.Produces), Reads: copies(r.h.Reads), Claims: copies(r.h.Claims), Settles: copies(r.h.Settles),
		Resets: copies(r.h.Resets), Names: copies(r.h.Names), Leases: copies(r.h.Leases),
	}
}

// copies are safe from operations that end later: End writes to the operation itself, and to no slice of it that
// was handed out.
func copies[T any](list []*T) []*T {
	out := make([]*T, len(list))
	for i, op := range list {
		c := *op
		if p, ok := any(&c).(*Produce); ok {
			p.Messages = slices.Clone(p.Messages)
		}
		if s, ok := any(&c).(*Settle); ok {
			s.Receipts = slices.Clone(s.Receipts)
		}
		out[i] = &c
	}
	return out
}
