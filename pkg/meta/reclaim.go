package meta

import (
	"encoding/hex"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// The records by which objects find their end (docs/decisions/0007). Each message of an object is
// owned by one ref; what becomes of refs that were dropped is noted in these.

// Lease is time-bounded ownership of a name. The record is never deleted, so its epoch never starts
// anew.
type Lease struct {
	Name  string      `json:"name"`
	Owner string      `json:"owner"`
	Epoch queue.Epoch `json:"epoch"`
	// TTL is how long others leave the lease alone from when they first saw this version of it.
	TTL time.Duration `json:"ttl"`
	// Free says that the owner has given it up.
	Free bool `json:"free,omitempty"`
	// Value is what the owner leaves for the next one.
	Value uint64 `json:"value,omitempty"`
}

// LeaseKey is where a lease stands.
func LeaseKey(name string) Key { return Key{"l/" + name, "lease"} }

// Key implements Record.
func (l *Lease) Key() Key { return LeaseKey(l.Name) }

// Kind implements Record.
func (l *Lease) Kind() Kind { return KindLease }

// WorkPK is the partition of what the compactor has to do, ordered by when it is due.
func WorkPK(shard int) string { return fmt.Sprintf("w/%d", shard) }

// WorkShards is the number of shards of the work index.
const WorkShards = 1

// WorkSK orders work by due time. WorkSK(t, "") is below all that is due at t or later.
func WorkSK(due queue.Millis, id string) string { return fmt.Sprintf("%015d/%s", due, id) }

// Work says that a segment has pages that are worth a look, from Due on.
type Work struct {
	Due     queue.Millis    `json:"due"`
	Segment queue.SegmentID `json:"segment"`
}

// Key implements Record.
func (w *Work) Key() Key { return Key{WorkPK(0), WorkSK(w.Due, string(w.Segment))} }

// Kind implements Record.
func (w *Work) Kind() Kind { return KindWork }

// Drop lists refs that are no longer reachable. From Due on, a grace period later, what they owned is
// given back. It is put in the transaction that makes them unreachable.
type Drop struct {
	Due queue.Millis `json:"due"`
	ID  string       `json:"id"`
	// Intent says that the runs are about to become reachable: whoever makes them so deletes the
	// record in the same transaction, and whoever finds it due takes Intent off before anything
	// else.
	Intent bool `json:"intent,omitempty"`
	// Again says that the objects of Runs are deleted already: what has been noted of them since, by a
	// compactor's request that came late, is to go, too.
	Again bool  `json:"again,omitempty"`
	Runs  []Run `json:"runs"`
}

// PutDrop is the op that notes at now that refs which own runs are being dropped.
func PutDrop(now queue.Millis, ids *queue.IDs, runs ...Run) Put {
	return Put{Record: &Drop{Due: now.Add(queue.GracePeriod), ID: ids.ID(), Runs: runs}, If: Absent(), Version: NewVersion(ids)}
}

// PutAgain is the op that notes at now that deleted objects are to be looked at once more.
func PutAgain(now queue.Millis, ids *queue.IDs, runs ...Run) Put {
	return Put{Record: &Drop{Due: now.Add(queue.GracePeriod), ID: ids.ID(), Again: true, Runs: runs}, If: Absent(), Version: NewVersion(ids)}
}

// Key implements Record.
func (d *Drop) Key() Key { return Key{WorkPK(0), WorkSK(d.Due, d.ID)} }

// Kind implements Record.
func (d *Drop) Kind() Kind { return KindDrop }

// Run is what one ref owns: its run of records in an object. See Ref.
type Run struct {
	Object string `json:"o"`
	Inline bool   `json:"i,omitempty"`
	Hold   string `json:"h,omitempty"`
	Pos    int64  `json:"p,omitempty"`
	First  uint32 `json:"f,omitempty"`
	Count  uint32 `json:"c"`
	Total  uint32 `json:"t,omitempty"`
}

// Owned is what the ref owns.
func (r *Ref) Owned() Run {
	return Run{Object: r.Object, Inline: r.Inline, Hold: r.Hold.String(), Pos: r.Pos, First: r.First, Count: r.Count, Total: r.Total}
}

// String is the id in hexadecimal; "" for the zero id.
func (id RefID) String() string {
	if id == (RefID{}) {
		return ""
	}
	return hex.EncodeToString(id[:])
}

// ObjectPK is the partition of what is noted of an object or payload record; ordinary objects have
// nothing noted.
func ObjectPK(object string, inline bool) string {
	if inline {
		return "o/p/" + object
	}
	return "o/b/" + object
}

// The sort keys of what is noted of an object.
const (
	condemnedSK = "condemned"
	holdPrefix  = "hold/"
	freedPrefix = "freed/"
)

// Hold keeps an object for refs that are not of the call that wrote it: dead letters, and each
// submission of an upload. Its refs own Total records under it.
type Hold struct {
	Object  string       `json:"object"`
	Inline  bool         `json:"inline,omitempty"`
	ID      string       `json:"id"`
	Total   uint32       `json:"total"`
	Created queue.Millis `json:"created"`
}

// Key implements Record.
func (h *Hold) Key() Key { return HoldKey(h.Object, h.Inline, h.ID) }

// HoldKey is where a hold stands.
func HoldKey(object string, inline bool, id string) Key {
	return Key{ObjectPK(object, inline), holdPrefix + id}
}

// Kind implements Record.
func (h *Hold) Kind() Kind { return KindHold }

// Freed notes that a run's owner has given it up, of an object or hold that has several owners.
type Freed struct {
	Run Run `json:"run"`
}

// Key implements Record.
func (f *Freed) Key() Key {
	r := &f.Run
	return Key{ObjectPK(r.Object, r.Inline), fmt.Sprintf("%s%s/%d/%d", freedPrefix, r.Hold, r.Pos, r.First)}
}

// Kind implements Record.
func (f *Freed) Kind() Kind { return KindFreed }

// Condemned says that an object is about to be deleted or was: an upload is not submitted any more.
type Condemned struct {
	Object  string       `json:"object"`
	Inline  bool         `json:"inline,omitempty"`
	Expires queue.Millis `json:"expires"`
}

// CondemnedKey is where an object's condemnation stands.
func CondemnedKey(object string, inline bool) Key {
	return Key{ObjectPK(object, inline), condemnedSK}
}

// Key implements Record.
func (c *Condemned) Key() Key { return CondemnedKey(c.Object, c.Inline) }

// Kind implements Record.
func (c *Condemned) Kind() Kind { return KindCondemned }

// ExpiresAt implements Expiring.
func (c *Condemned) ExpiresAt() queue.Millis { return c.Expires }

// Progress is how far a walk that no single run finishes has come.
type Progress struct {
	Name string `json:"name"`
	// After is where to go on; Again when to begin anew.
	After string       `json:"after,omitempty"`
	Again queue.Millis `json:"again,omitempty"`
}

// ProgressKey is where a progress stands.
func ProgressKey(name string) Key { return Key{ProgressPK, name} }

// Key implements Record.
func (p *Progress) Key() Key { return ProgressKey(p.Name) }

// Kind implements Record.
func (p *Progress) Kind() Kind { return KindProgress }
