package meta

import "github.com/spillway-mq/spillway/pkg/queue"

// Removal says that a topic, or only what a subscription noted under one of its ids, is to be removed, from
// Due on. It is put in the transaction that makes the topic or the id dead, stands in the index of work, and
// goes when a look at all of it, a grace period after the last one, has found nothing.
type Removal struct {
	Due   queue.Millis  `json:"due"`
	Topic queue.TopicID `json:"topic"`
	// Name is the topic's, to be freed; "" in the removal of a subscription's id.
	Name         string               `json:"name,omitempty"`
	Subscription queue.SubscriptionID `json:"subscription,omitempty"`
	// Intent says that the topic is about to be made: whoever makes it deletes the record in the same
	// transaction, and whoever finds it due takes Intent off before anything else.
	Intent bool `json:"intent,omitempty"`
	// Dead says that the topic takes no commits and its name is free, for a grace period at least.
	Dead bool `json:"dead,omitempty"`
	// Found says that the look under way has found something; After is the segment it has come to.
	Found bool            `json:"found,omitempty"`
	After queue.SegmentID `json:"after,omitempty"`
}

// Key implements Record.
func (r *Removal) Key() Key {
	id := "remove/" + string(r.Topic)
	if r.Subscription != "" {
		id += "/" + string(r.Subscription)
	}
	return Key{WorkPK(0), WorkSK(r.Due, id)}
}

// Kind implements Record.
func (r *Removal) Kind() Kind { return KindRemoval }

// PutRemoval is the op that notes a removal. If there is one of that time already it stays the same work.
func PutRemoval(r *Removal, ids *queue.IDs) Put { return Put{Record: r, Version: NewVersion(ids)} }

// ProgressPK is the partition of all progress.
const ProgressPK = "w/progress"

// Waiting gives a ref for each run of an entry's messages that still wait in it, in order: what the entry
// owns. Of the refs only the run counts; their times and lengths are those of the whole.
func (d *Delayed) Waiting() []Ref {
	var out []Ref
	gone := d.Gone
	for i := uint32(0); i < d.Ref.Count; {
		if len(gone) > 0 && gone[0] == i {
			gone = gone[1:]
			i++
			continue
		}
		end := d.Ref.Count
		if len(gone) > 0 {
			end = min(end, gone[0])
		}
		r := d.Ref
		r.First, r.Count = r.First+i, end-i
		out = append(out, r)
		i = end
	}
	return out
}
