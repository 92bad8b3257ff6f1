package wire

import "github.com/spillway-mq/spillway/pkg/queue"

// TopicConfig is the body of PUT of a topic, where an absent field takes its default, and "config" of
// its status, whose every field is set. Retention, DedupWindow and Compaction are named by the contract but
// not available in this version: the server refuses any value but the one that means "off".
type TopicConfig struct {
	// DefaultDelay is 0 to MaxDelay seconds; above 0 it makes a delayed topic.
	DefaultDelay *float64 `json:"default_delay,omitempty"`
	// MaxDelay is 0 to queue.MaxMaxDelay; queue.DefaultMaxDelay unless given.
	MaxDelay *float64 `json:"max_delay,omitempty"`
	// DefaultTTL is 0 (none) to queue.MaxTTL.
	DefaultTTL *float64 `json:"default_ttl,omitempty"`
	// MaxMessageBytes is 1 to queue.MaxInlineMessageBytes.
	MaxMessageBytes *int64 `json:"max_message_bytes,omitempty"`
	// PartitionKey is "$.path" into a JSON body, "header:name", or empty.
	PartitionKey *string  `json:"partition_key,omitempty"`
	Scaling      *Scaling `json:"scaling,omitempty"`
	// Attributes are the owner's own.
	Attributes map[string]string `json:"attributes,omitempty"`

	Retention   *Retention `json:"retention,omitempty"`
	DedupWindow *float64   `json:"dedup_window,omitempty"`
	Compaction  *string    `json:"compaction,omitempty"`
}

// TopicPatch is the body of PATCH of a topic: as TopicConfig, but an absent field stays as it is, and
// attributes are set one by one; null removes one.
type TopicPatch struct {
	DefaultDelay    *float64           `json:"default_delay,omitempty"`
	MaxDelay        *float64           `json:"max_delay,omitempty"`
	DefaultTTL      *float64           `json:"default_ttl,omitempty"`
	MaxMessageBytes *int64             `json:"max_message_bytes,omitempty"`
	PartitionKey    *string            `json:"partition_key,omitempty"`
	Scaling         *Scaling           `json:"scaling,omitempty"`
	Attributes      map[string]*string `json:"attributes,omitempty"`

	Retention   *Retention `json:"retention,omitempty"`
	DedupWindow *float64   `json:"dedup_window,omitempty"`
	Compaction  *string    `json:"compaction,omitempty"`
}

// CompactionNone is the one compaction of this version.
const CompactionNone = "none"

// Scaling is how a topic's segments follow its load, as far as its owner says.
type Scaling struct {
	// MinSegments is 1 to queue.MaxSegments; 1 unless given.
	MinSegments *int `json:"min_segments,omitempty"`
	// MaxSegments is MinSegments to queue.MaxSegments; 0, or absent, takes the default.
	MaxSegments *int `json:"max_segments,omitempty"`
	// TargetMessagesPerSecond and TargetBytesPerSecond are what one segment should carry; 0, or absent,
	// takes the service's.
	TargetMessagesPerSecond *int64 `json:"target_messages_per_second,omitempty"`
	TargetBytesPerSecond    *int64 `json:"target_bytes_per_second,omitempty"`
}

// Policy is the scaling policy in effect, with the defaults filled in.
type Policy struct {
	MinSegments             int   `json:"min_segments"`
	MaxSegments             int   `json:"max_segments"`
	TargetMessagesPerSecond int64 `json:"target_messages_per_second"`
	TargetBytesPerSecond    int64 `json:"target_bytes_per_second"`
}

// Retention bounds what a topic keeps.
type Retention struct {
	// Age is in seconds.
	Age   *float64 `json:"age,omitempty"`
	Bytes *int64   `json:"bytes,omitempty"`
}

// Topic is the status of a topic.
type Topic struct {
	Name       string        `json:"name"`
	ID         queue.TopicID `json:"id"`
	State      string        `json:"state"` // open, sealed, deleting
	CreatedAt  Time          `json:"created_at"`
	ModifiedAt Time          `json:"modified_at"`
	Config     TopicConfig   `json:"config"`
	// Scaling is the policy in effect: what Config sets, and defaults.
	Scaling  Policy        `json:"scaling"`
	Segments SegmentCounts `json:"segments"`
	Messages MessageCounts `json:"messages"`
}

// SegmentCounts counts a topic's segments.
type SegmentCounts struct {
	Open   int `json:"open"`
	Sealed int `json:"sealed"`
}

// MessageCounts counts a topic's messages: Ready are in segments, whether consumed or not, Delayed
// wait in the delayed index. Bytes is the length of all bodies ever appended to segments.
type MessageCounts struct {
	Ready   uint64 `json:"ready"`
	Delayed uint64 `json:"delayed"`
	// DelayedMore: Delayed is where the count ended, and there are more.
	DelayedMore bool   `json:"delayed_more,omitempty"`
	Bytes       uint64 `json:"bytes"`
}

// TopicEntry is one line of a listing.
type TopicEntry struct {
	Name      string        `json:"name"`
	ID        queue.TopicID `json:"id"`
	CreatedAt Time          `json:"created_at"`
}

// TopicList is a page of topics, by name.
type TopicList struct {
	Topics     []TopicEntry `json:"topics"`
	NextCursor string       `json:"next_cursor,omitempty"`
}
