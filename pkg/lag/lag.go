// Package lag is the use case that tells how long the oldest message has been waiting to be claimed,
// over all subscriptions of all topics: the figure that an alarm goes by.
//
// Vocabulary: a place is one subscription in one segment; a look reads a place; a walk is the looks at
// all places, in order of topics, which takes several runs where there are many; settled places hold
// nothing that waits, is in flight or is to be tried again; a mark is the record that says that
// something was appended lately (Watch).
//
// A run costs, by what it finds:
//   - Nothing was appended since the last walk and all is settled: one read, of the mark, and the walk
//     goes on by idleLooks places, so that what no mark tells of (its writer died) is found in the end.
//   - Something was appended: the walk goes on by maxLooks. A place that was settled and whose head is
//     where it was costs one read, another two, or three if its messages are in a page; a topic costs
//     the two reads that open it, and counts as a place.
//   - Places that are not settled are looked at in each run, those that wait longest first, maxLooks of
//     them at most.
//
// So the age is exact, to a run, while topics and places are no more than maxLooks together; past that a
// place that falls behind is noticed within (places / maxLooks) runs, and is exact from then on.
//
// Invariants: nothing but the mark is written; what is remembered between runs only saves looks, so any
// number of processes may run, and one that begins anew walks once. No name of a topic leaves the package.
//
// Non-goals: counts of messages (pkg/consume has them, for one subscription), ages of what is in flight.
package lag

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

const (
	// maxLooks bounds the topics and places of one run's walk, and the places that are looked at again.
	maxLooks = 200
	// idleLooks is that bound of the walk while nothing was appended: a topic and a place.
	idleLooks = 2
	// maxKnown bounds what is remembered; forgetting costs looks.
	maxKnown = 20_000
)

// Topics finds topics; *topics.Service is one.
type Topics interface {
	List(ctx context.Context, prefix, cursor string, limit int) ([]topics.Listed, string, error)
	Open(ctx context.Context, name string) (*topics.Map, error)
}

// Backlogs looks at places; *consume.Service is one.
type Backlogs interface {
	Backlog(ctx context.Context, sub *meta.Subscription, seg *meta.Segment, settled queue.Offset) (consume.Backlog, error)
}

// Deps are what a Service stands on. Topics, Backlogs and Clock are required.
type Deps struct {
	Topics   Topics
	Backlogs Backlogs
	Clock    queue.Clock
	// Meta is where marks are read. Nil is for a process whose reads cost nothing: each run then
	// walks as if something had been appended.
	Meta meta.Store
}

// Report is what a run found.
type Report struct {
	// Oldest is for how long the oldest message that may be claimed, and is not, has been visible;
	// 0 if there is none.
	Oldest time.Duration
	// Waiting is how many places hold such messages, and Looks how many the run looked at.
	Waiting, Looks int
}

// Service looks. Safe for concurrent use; runs of one Service take turns.
type Service struct {
	Deps

	mu    sync.Mutex // guards what follows, for a whole run
	known map[place]*state
	// open are the known places that are not settled.
	open map[place]*state
	walk walk
	// runs counts the runs.
	runs uint64
}

// place is a subscription in a segment. A seek gives the subscription another id.
type place struct {
	sub queue.SubscriptionID
	seg queue.SegmentID
}

// state is what the last look at a place showed.
type state struct {
	topic, sub string
	// settled is the offset up to which all is done, 0 if not all is.
	settled queue.Offset
	// ended: the segment is sealed and settled, and nothing comes any more.
	ended bool
	// oldest is since when the oldest message waits; 0 if none does.
	oldest queue.Millis
	// looked is the run that looked.
	looked uint64
}

// New makes a Service.
func New(d Deps) *Service {
	return &Service{Deps: d, known: make(map[place]*state), open: make(map[place]*state)}
}

// Look makes one run. It goes on after a place that cannot be read, and says so in the error; the report
// then has what was known of that place. It ends early, with what it has, if ctx ends.
func (s *Service) Look(ctx context.Context) (Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs++
	r := &run{
		Service: s, opened: make(map[string]*topics.Map), counted: make(map[string]bool), seen: make(map[place]bool),
	}
	now := s.Clock.Millis()
	looks, err := s.looks(ctx, now)
	r.note(err)
	r.again(ctx)
	r.goOn(ctx, looks, now)
	report := Report{Looks: len(r.seen)}
	now = s.Clock.Millis()
	for _, st := range s.open {
		if st.oldest != 0 {
			report.Waiting++
			report.Oldest = max(report.Oldest, now.Sub(st.oldest))
		}
	}
	return report, r.err()
}

// looks is how many places the walk may look at in this run.
func (s *Service) looks(ctx context.Context, now queue.Millis) (int, error) {
	if s.Meta == nil || s.walk.ended == 0 {
		return maxLooks, nil
	}
	at, err := lastMark(ctx, s.Meta)
	if err != nil || at != 0 && s.walk.ended < at.Add(markReach) && at <= now.Add(markReach) {
		// What the mark stands for may have come after the walk had passed. A mark from the far
		// future is a broken clock's, and must not keep the walks going for ever.
		return maxLooks, err
	}
	return idleLooks, nil
}
