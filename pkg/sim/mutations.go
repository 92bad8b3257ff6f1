package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/meta"
)

// Mutations are the faults that the checks must find, each within a few hundred runs.
func Mutations() []Mutation {
	all := slices.Concat(logMutations(), claimMutations(), delayMutations(), collectMutations(), scaleMutations())
	for i := range all {
		all[i].From = foundBy[all[i].Name]
	}
	return all
}

// foundBy is the seed by which each was found last, where that is not the first.
var foundBy = map[string]uint64{ //checks:state it is never changed
	"append does not look for its refs in the tail":      22,
	"append ignores the seal":                            4,
	"retried append leaves no mark and looks no further": 14,
	"transactions are torn":                              2,
	"take ignores Next":                                  4,
	"take takes claims that others hold":                 2,
	"settle ignores who holds the claim":                 9,
	"ack takes the neighbour along":                      3,
	"release does not count":                             3,
	"ack is answered and not carried out":                3,
	"dead letters are not appended after expiry":         6,
	"dead letters are not appended on rejection":         3,
	"dead letters stay claimable":                        6,
	"promotion leaves the entry":                         4,
	"promotion does not append":                          4,
	"entries are changed whatever their version":         23,
	"attempts are put whatever is there":                 17,
	"clocks run ahead":                                   2,
	"delayed entries void no appends":                    236,
	"dropped bytes are collected without grace":          3,
	"removals come without grace":                        11,
	"pages are replaced without lease or version":        438,
	"freed runs are not noted":                           2,
	"removals are not noted":                             2,
	"objects are said to have one owner":                 2,
	"holds are forgotten at the first run":               5,
	"change asks for no version of the topic":            81,
	"change asks for no version at all":                  29,
	"children's ranges end one slot early":               2,
	"parents' heads stay open":                           2,
	"parents know no successors":                         2,
	"children begin in their parents' epoch":             2,
	"leader's changes ask for no lease":                  2,
	"no event tells of a change":                         2,
	"retry does not look in predecessors":                186,
	"merges go below the minimum":                        5,
	"splits go above the maximum":                        9,
	"map never shows the last change":                    4,
}

func logMutations() []Mutation {
	return []Mutation{
		onHead("append does not look for its refs in the tail", func(_ *meta.Append, h *meta.Head) {
			h.Tail = nil
		}),
		onHead("append ignores the producer's sequence, and the tail", func(_ *meta.Append, h *meta.Head) {
			h.Producers, h.Tail = nil, nil
		}),
		onHead("append ignores the seal", func(_ *meta.Append, h *meta.Head) { h.Sealed = false }),
		each("retried append leaves no mark and looks no further", func(a meta.Append, _ *rand.Rand) meta.Op {
			a.SeenFrom, a.Deadline = nil, 0
			if a.Producer != nil && a.Producer.ID == meta.Mark(&a.Refs[0]) {
				a.Producer = nil
			}
			return a
		}),
		each("append does not put its payload", func(a meta.Append, _ *rand.Rand) meta.Op {
			a.Payload = nil
			return a
		}),
		each("append is doubled", func(a meta.Append, rng *rand.Rand) meta.Op {
			if rng.IntN(10) == 0 && len(a.Refs) == 1 {
				again := a.Refs[0]
				again.ID[0] ^= 1
				a.Refs = []meta.Ref{a.Refs[0], again}
			}
			return a
		}),
		{Name: "append is acknowledged before it is durable", Records: acksEarly},
		without[meta.Put, meta.Trim]("roll loses the page"),
		each("roll trims one ref too many from the page", func(p meta.Put, _ *rand.Rand) meta.Op {
			if page, ok := p.Record.(*meta.RefPage); ok && len(page.Refs) > 1 {
				less := *page
				less.Refs = less.Refs[:len(less.Refs)-1]
				p.Record = &less
			}
			return p
		}),
		without[meta.Trim, meta.Put]("roll does not trim the head"),
		{Name: "objects are lost", Objects: func(s blob.Store, rng *rand.Rand) blob.Store { return &blobMutant{s, rng} }},
		{Name: "reads of heads are stale", Records: func(s meta.Store, _ *rand.Rand) meta.Store {
			return &staleReads{s, make(map[meta.Key]meta.Item), make(map[meta.Key]meta.Item)}
		}},
		{Name: "transactions are torn", Records: tornTransactions},
	}
}

func claimMutations() []Mutation {
	return []Mutation{
		onCursor("take ignores Next", func(t *meta.Take, c *meta.Cursor) {
			if t.From != t.To && len(c.Claims) > 0 {
				c.Next = t.From
			}
		}),
		onCursor("take takes claims that others hold", func(t *meta.Take, _ *meta.Cursor) {
			t.Drop = nil
		}),
		onCursor("settle ignores who holds the claim", func(s *meta.Settle, c *meta.Cursor) {
			for _, id := range slices.SortedFunc(claimIDs(c), compareClaims) {
				if len(s.Done) > 0 && c.Claims[id].Holds(s.Done[0].Lo) {
					s.Claim = id
				}
			}
		}),
		each("ack takes the neighbour along", func(s meta.Settle, _ *rand.Rand) meta.Op {
			if len(s.Done) > 0 {
				s.Done = slices.Clone(s.Done)
				s.Done[len(s.Done)-1].Hi++
			}
			return s
		}),
		each("release does not count", func(s meta.Settle, _ *rand.Rand) meta.Op {
			s.Release = slices.Clone(s.Release)
			for i := range s.Release {
				s.Release[i].Attempts = 0
			}
			return s
		}),
		each("ack is answered and not carried out", func(s meta.Settle, rng *rand.Rand) meta.Op {
			if len(s.Done) > 0 && rng.IntN(10) == 0 {
				return nil
			}
			return s
		}),
		without[meta.Append, meta.Take]("dead letters are not appended after expiry"),
		without[meta.Append, meta.Settle]("dead letters are not appended on rejection"),
		without[meta.Take, meta.Append]("dead letters stay claimable"),
	}
}

func delayMutations() []Mutation {
	return []Mutation{
		without[meta.Delete, meta.Append]("promotion leaves the entry"),
		without[meta.Append, meta.Delete]("promotion does not append"),
		each("entries are changed whatever their version", func(d meta.Delete, _ *rand.Rand) meta.Op {
			d.If = meta.Any()
			return d
		}),
		each("attempts are put whatever is there", func(p meta.Put, _ *rand.Rand) meta.Op {
			if p.Record.Kind() == meta.KindAttempt {
				p.If = meta.Any()
			}
			return p
		}),
		without[meta.Void, meta.Put]("delayed entries void no appends"),
		{Name: "what is to be put once is put again", Records: func(s meta.Store, rng *rand.Rand) meta.Store {
			return &resending{Store: s, rng: rng}
		}},
		{Name: "clocks run ahead", ClockAhead: 20 * time.Second},
	}
}
