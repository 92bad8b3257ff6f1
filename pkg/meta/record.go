package meta

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Kind says which type of record stands under a key. The numbers are stored: never reuse one.
type Kind uint8

// The kinds of records.
const (
	KindName         Kind = 1
	KindTopic        Kind = 2
	KindSegment      Kind = 3
	KindHead         Kind = 4
	KindPage         Kind = 5
	KindPayload      Kind = 6
	KindSubscription Kind = 7
	KindCursor       Kind = 8
	KindDelayed      Kind = 9
	KindForward      Kind = 10
	KindAttempt      Kind = 11
	KindLease        Kind = 12
	KindWork         Kind = 13
	KindDrop         Kind = 14
	KindHold         Kind = 15
	KindFreed        Kind = 16
	KindCondemned    Kind = 17
	KindProgress     Kind = 18
	KindRemoval      Kind = 19
	KindWatch        Kind = 24
	KindGauge        Kind = 25
	KindEvent        Kind = 26
)

var kindNames = [...]string{
	KindName: "name", KindTopic: "topic", KindSegment: "segment", KindHead: "head", KindPage: "page",
	KindPayload: "payload", KindSubscription: "subscription", KindCursor: "cursor",
	KindDelayed: "delayed", KindForward: "forward", KindAttempt: "attempt",
	KindLease: "lease", KindWork: "work", KindDrop: "drop", KindHold: "hold", KindFreed: "freed",
	KindCondemned: "condemned", KindProgress: "progress",
	KindWatch: "watch", KindGauge: "gauge", KindEvent: "event", KindRemoval: "removal",
}

// String names the kind.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Record is one of *Name, *Topic, *Segment, *Head, *RefPage, *Payload, *Subscription, *Cursor,
// *Delayed, *Forward, *Attempt, *Lease, *Work, *Drop, *Hold, *Freed, *Condemned, *Progress, *Watch, *Gauge, *Event, *Removal.
type Record interface {
	Key() Key
	Kind() Kind
}

// Name is an entry of the namespace: it points to a topic's id or links to another name.
type Name struct {
	Name  string        `json:"name"`
	Topic queue.TopicID `json:"topic,omitempty"`
	// Link is the target name of a link; empty for a topic.
	Link    string       `json:"link,omitempty"`
	Created queue.Millis `json:"created"`
}

// NamespacePK is the partition of all names.
const NamespacePK = "n"

// NameKey is where a name stands.
func NameKey(name string) Key { return Key{NamespacePK, name} }

// Key implements Record.
func (n *Name) Key() Key { return NameKey(n.Name) }

// Kind implements Record.
func (n *Name) Kind() Kind { return KindName }

// TopicState is the life of a topic.
type TopicState string

// The states of a topic.
const (
	TopicOpen     TopicState = "open"
	TopicSealed   TopicState = "sealed"
	TopicDeleting TopicState = "deleting"
)

// Topic is a topic's own record.
type Topic struct {
	ID    queue.TopicID `json:"id"`
	State TopicState    `json:"state"`
	// Epoch grows with each change of the segment map.
	Epoch    queue.Epoch  `json:"epoch"`
	Config   TopicConfig  `json:"config"`
	Created  queue.Millis `json:"created"`
	Modified queue.Millis `json:"modified"`
	// DelayedUntil is set once a delayed topic's config was changed: entries put under the old
	// config may still wait in the delayed index until then.
	DelayedUntil queue.Millis `json:"delayed_until,omitempty"`
	// Switched is when the topic last became a delayed one, or a normal one again, by the clock of who
	// changed it; 0 if it never did.
	Switched queue.Millis `json:"switched,omitempty"`
}

// Promotes reports whether consumers must look for due messages before they claim: the topic is
// delayed, or was until lately.
func (t *Topic) Promotes(now queue.Millis) bool { return t.Config.Delayed() || now < t.DelayedUntil }

// EverDelayed reports whether anything may ever have been put in the topic's delayed index. The
// backstop goes by it, so that a writer that stalled past DelayedUntil is found in the end.
func (t *Topic) EverDelayed() bool { return t.Config.Delayed() || t.DelayedUntil != 0 }

// TopicConfig is what the owner of a topic sets. Durations are nanoseconds here; the edge speaks
// seconds.
type TopicConfig struct {
	DefaultDelay    time.Duration `json:"default_delay,omitempty"`
	MaxDelay        time.Duration `json:"max_delay,omitempty"`
	DefaultTTL      time.Duration `json:"default_ttl,omitempty"`
	MaxMessageBytes int64         `json:"max_message_bytes"`
	PartitionKey    string        `json:"partition_key,omitempty"`
	MinSegments     int           `json:"min_segments"`
	// MaxSegments, TargetMessages and TargetBytes (a second and segment) are 0 where the deployment's
	// defaults hold.
	MaxSegments    int               `json:"max_segments,omitempty"`
	TargetMessages int64             `json:"target_messages,omitempty"`
	TargetBytes    int64             `json:"target_bytes,omitempty"`
	Attributes     map[string]string `json:"attributes,omitempty"`
}

// MessageTimes is the part of a config that decides when a message becomes visible and expires.
type MessageTimes struct {
	DefaultDelay time.Duration `json:"default_delay,omitempty"`
	MaxDelay     time.Duration `json:"max_delay,omitempty"`
	DefaultTTL   time.Duration `json:"default_ttl,omitempty"`
}

// Times are the config's message times.
func (c TopicConfig) Times() MessageTimes {
	return MessageTimes{DefaultDelay: c.DefaultDelay, MaxDelay: c.MaxDelay, DefaultTTL: c.DefaultTTL}
}

// Delayed reports whether messages of the topic may wait in the delayed index.
func (c TopicConfig) Delayed() bool { return c.DefaultDelay > 0 }

// TopicPK is the partition of a topic's record, segments and subscriptions.
func TopicPK(id queue.TopicID) string { return "t/" + string(id) }

// Sort keys within a topic's partition.
const (
	topicSK              = "topic"
	SegmentPrefix        = "segment/"
	SubscriptionPrefix   = "subscription/"
	prefixEndAfterSlash  = "0" // the byte after '/'
	SegmentPrefixEnd     = "segment" + prefixEndAfterSlash
	SubscriptionRangeEnd = "subscription" + prefixEndAfterSlash
)

// TopicKey is where a topic's record stands.
func TopicKey(id queue.TopicID) Key { return Key{TopicPK(id), topicSK} }

// Key implements Record.
func (t *Topic) Key() Key { return TopicKey(t.ID) }

// Kind implements Record.
func (t *Topic) Kind() Kind { return KindTopic }

// Segment is a segment's descriptor within a topic.
type Segment struct {
	Topic        queue.TopicID     `json:"topic"`
	ID           queue.SegmentID   `json:"id"`
	Range        queue.SlotRange   `json:"range"`
	Epoch        queue.Epoch       `json:"epoch"`
	Predecessors []queue.SegmentID `json:"predecessors,omitempty"`
	Successors   []queue.SegmentID `json:"successors,omitempty"`
	Created      queue.Millis      `json:"created"`
	Sealed       queue.Millis      `json:"sealed,omitempty"`
}

// Key implements Record.
func (s *Segment) Key() Key { return Key{TopicPK(s.Topic), SegmentPrefix + string(s.ID)} }

// Kind implements Record.
func (s *Segment) Kind() Kind { return KindSegment }

// Payload is a small batch kept in the metadata store. Immutable. PayloadID makes its id.
type Payload struct {
	ID   string
	Data []byte
}

// Key implements Record.
func (p *Payload) Key() Key { return PayloadKey(p.ID) }

// Kind implements Record.
func (p *Payload) Kind() Kind { return KindPayload }

// Subscription is a named consumer group of a topic.
type Subscription struct {
	Topic queue.TopicID `json:"topic"`
	Name  string        `json:"name"`
	// ID changes when the subscription seeks: cursors of the old id are dead, and so are their
	// receipts.
	ID                queue.SubscriptionID `json:"id"`
	Ordering          Ordering             `json:"ordering,omitempty"`
	VisibilityTimeout time.Duration        `json:"visibility_timeout"`
	MaxDeliveries     int                  `json:"max_deliveries,omitempty"`
	DeadLetterTopic   string               `json:"dead_letter_topic,omitempty"`
	MaxInFlight       int                  `json:"max_in_flight"`
	Backoff           []time.Duration      `json:"backoff,omitempty"`
	// Start is what the subscription was created with, in a canonical text, so that the same
	// creation again can be told from another.
	Start string `json:"start,omitempty"`
	// Cut is the first offset of each segment that the subscription reads; a segment that is
	// not in it is read from its start.
	Cut map[queue.SegmentID]queue.Offset `json:"cut,omitempty"`
	// Drained are sealed segments that have nothing more for the subscription, for good: so a new
	// process does not look there. Some may be missing, which costs it two reads each; if one is in
	// it, so are or were all its predecessors, or the subscription is not Keyed.
	Drained  []queue.SegmentID `json:"drained,omitempty"`
	Created  queue.Millis      `json:"created"`
	Modified queue.Millis      `json:"modified"`
}

// MaxDrained bounds a subscription's list of drained segments.
const MaxDrained = 1024

// Ordering says what order a subscription's messages come in. It never changes.
type Ordering string

// The orderings.
const (
	// OrderingNone: about in the order of commits.
	OrderingNone Ordering = ""
	// OrderingKey: those of one key in the order of commits, one after another.
	OrderingKey Ordering = "key"
)

// Keyed reports whether each key's messages come in order.
func (s *Subscription) Keyed() bool { return s.Ordering == OrderingKey }

// SubscriptionKey is where a subscription stands.
func SubscriptionKey(topic queue.TopicID, name string) Key {
	return Key{TopicPK(topic), SubscriptionPrefix + name}
}

// Key implements Record.
func (s *Subscription) Key() Key { return SubscriptionKey(s.Topic, s.Name) }

// Kind implements Record.
func (s *Subscription) Kind() Kind { return KindSubscription }

// Delayed is an entry of the delayed index: messages of one produce call that become visible at the
// same time and expire at the same time. Message i of the entry is record Ref.First+i of the batch.
type Delayed struct {
	Topic   queue.TopicID `json:"topic"`
	Shard   int           `json:"shard"`
	Visible queue.Millis  `json:"visible"`
	ID      queue.EntryID `json:"id"`
	// Ref is the ref as promotion will append it, but for its run.
	Ref Ref `json:"ref"`
	// Slots has the slot of each message, ascending.
	Slots []queue.Slot `json:"slots"`
	// Sizes has the length of each message's body in bytes, so that a run of the entry knows its
	// own Ref.Bytes; nil where that is not known, and then a run takes its share of the whole.
	Sizes []uint32 `json:"sizes,omitempty"`
	// Gone lists the messages (ascending) that were cancelled, moved by an edit to an entry of
	// their own, or promoted already: an entry that spans more segments than one transaction
	// may touch is promoted in parts. Of a husk, which an edit leaves until it is due, all are.
	Gone []uint32 `json:"gone,omitempty"`
	// Home is the id that the caller knows the message by, if the entry holds one message that
	// an edit moved here; a Forward leads from it to this entry.
	Home *queue.DelayedID `json:"home,omitempty"`
}

// DelayedPK is the partition of one shard of a topic's delayed index.
func DelayedPK(topic queue.TopicID, shard int) string {
	return "d/" + string(topic) + "/" + strconv.Itoa(shard)
}

// DelayedSK orders entries by visible time: 15 decimal digits (until the year 33658), then the id.
// DelayedSK(t, "") is below every entry visible at t or later.
func DelayedSK(visible queue.Millis, id queue.EntryID) string {
	return fmt.Sprintf("%015d/%s", visible, id)
}

// DelayedEnd is above every entry of a shard and below every forward.
const DelayedEnd = "a"

// DelayedKey is where an entry stands.
func DelayedKey(topic queue.TopicID, shard int, visible queue.Millis, id queue.EntryID) Key {
	return Key{DelayedPK(topic, shard), DelayedSK(visible, id)}
}

// Key implements Record.
func (d *Delayed) Key() Key { return DelayedKey(d.Topic, d.Shard, d.Visible, d.ID) }

// Kind implements Record.
func (d *Delayed) Kind() Kind { return KindDelayed }

// Forward leads from the id by which a caller knows a delayed message to the entry that an edit
// moved it to.
type Forward struct {
	Topic queue.TopicID   `json:"topic"`
	Home  queue.DelayedID `json:"home"`
	// Visible and Entry are the new entry's; Entry is empty once the message was promoted
	// before its home's visible time, so that a late edit is told so.
	Visible queue.Millis  `json:"visible,omitempty"`
	Entry   queue.EntryID `json:"entry,omitempty"`
}

// ForwardPK is the partition of a topic's forwards.
func ForwardPK(topic queue.TopicID) string { return "f/" + string(topic) }

// ForwardKey is where the forward of a delayed message stands.
func ForwardKey(topic queue.TopicID, home queue.DelayedID) Key {
	return Key{ForwardPK(topic), DelayedSK(home.Visible, home.Entry) + "/" + strconv.FormatUint(uint64(home.Index), 10)}
}

// Key implements Record.
func (f *Forward) Key() Key { return ForwardKey(f.Topic, f.Home) }

// Kind implements Record.
func (f *Forward) Kind() Kind { return KindForward }

// Attempt remembers a call that must not be carried out twice: one under an Idempotency-Key, or one
// of an idempotent producer that writes to the delayed index.
type Attempt struct {
	Topic queue.TopicID `json:"topic"`
	// Token is what the caller names the call by, hashed, with a prefix that says which.
	Token string `json:"token"`
	// Hash is the SHA-256 of the request's body, hexadecimal.
	Hash string `json:"hash,omitempty"`
	// Sequence is the producer's; 0 under an Idempotency-Key.
	Sequence uint64 `json:"sequence,omitempty"`
	// Nonce and Created are what the first try wrote its refs and entries with, so that a
	// second one finds them.
	Nonce   [16]byte     `json:"nonce"`
	Created queue.Millis `json:"created"`
	// Deadline is when the try that holds the record is void at the latest.
	Deadline queue.Millis `json:"deadline"`
	// Times are what the topic's config said at the first try. A later one goes by them: were it to
	// take the config of its own day, it would look for the first one's messages in other places.
	Times MessageTimes `json:"times,omitzero"`
	// Delayed is the answer for the call's delayed messages: set in the transaction that puts
	// their entries. Of a call whose entries take several transactions it is how far they are.
	Delayed []byte `json:"delayed,omitempty"`
	// Answer is the call's answer once it has one.
	Answer []byte `json:"answer,omitempty"`
	// Expires is when the record may be forgotten.
	Expires queue.Millis `json:"expires"`
}

// AttemptKey is where an attempt stands.
func AttemptKey(topic queue.TopicID, token string) Key {
	return Key{"i/" + string(topic) + "/" + token, "attempt"}
}

// Key implements Record.
func (a *Attempt) Key() Key { return AttemptKey(a.Topic, a.Token) }

// Kind implements Record.
func (a *Attempt) Kind() Kind { return KindAttempt }

// Expiring is a record that the store may remove by itself any time after ExpiresAt, and until then
// does not (DynamoDB's TTL; other drivers sweep). Reads may still return it after that time, and ops
// still find it. 0 means that it never expires.
type Expiring interface {
	Record
	ExpiresAt() queue.Millis
}

// ExpiresAt implements Expiring.
func (a *Attempt) ExpiresAt() queue.Millis { return a.Expires }
