package topics

import (
	"maps"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Config is what the owner of a topic sets. The zero value of a field takes its default.
type Config struct {
	// DefaultDelay is from commit to visibility, 0 to MaxDelay; a topic with 0 is a normal topic.
	DefaultDelay time.Duration
	// MaxDelay bounds a message's delay, up to queue.MaxMaxDelay; 0 takes queue.DefaultMaxDelay.
	MaxDelay time.Duration
	// DefaultTTL is the life of a message that has no ttl of its own, up to queue.MaxTTL; 0 is
	// none.
	DefaultTTL time.Duration
	// MaxMessageBytes bounds a body, 1 to queue.MaxInlineMessageBytes; 0 takes
	// queue.DefaultMaxMessageBytes.
	MaxMessageBytes int64
	// PartitionKey is a rule as ParseRule reads it; empty is none.
	PartitionKey string
	// MinSegments is the number of segments a topic starts with, 1 to queue.MaxSegments; 0 takes
	// 1.
	MinSegments int
	// MaxSegments bounds the open segments, MinSegments to queue.MaxSegments; 0 takes 256.
	MaxSegments int
	// TargetMessages and TargetBytes are what one segment should carry a second, 1 to maxTarget; 0 takes
	// the deployment's.
	TargetMessages, TargetBytes int64
	// Attributes are the owner's own.
	Attributes map[string]string
}

// Patch changes a topic's config: nil fields stay as they are.
type Patch struct {
	DefaultDelay    *time.Duration
	MaxDelay        *time.Duration
	DefaultTTL      *time.Duration
	MaxMessageBytes *int64
	PartitionKey    *string
	// MinSegments, MaxSegments, TargetMessages and TargetBytes are for the leader to act on.
	MinSegments, MaxSegments    *int
	TargetMessages, TargetBytes *int64
	// Attributes are set or replaced one by one; a nil value removes the attribute.
	Attributes map[string]*string
}

// record checks a config and gives it the form that is stored. Errors are Invalid and name the
// field as the API does.
func (c Config) record() (meta.TopicConfig, error) {
	r := meta.TopicConfig{
		DefaultDelay: c.DefaultDelay.Round(time.Millisecond), MaxDelay: c.MaxDelay.Round(time.Millisecond),
		DefaultTTL: c.DefaultTTL.Round(time.Millisecond), MaxMessageBytes: c.MaxMessageBytes,
		PartitionKey: c.PartitionKey, MinSegments: c.MinSegments, MaxSegments: c.MaxSegments,
		TargetMessages: c.TargetMessages, TargetBytes: c.TargetBytes,
	}
	if len(c.Attributes) > 0 {
		r.Attributes = maps.Clone(c.Attributes)
	}
	if c.MaxDelay == 0 {
		r.MaxDelay = queue.DefaultMaxDelay
	}
	if c.MaxMessageBytes == 0 {
		r.MaxMessageBytes = queue.DefaultMaxMessageBytes
	}
	if c.MinSegments == 0 {
		r.MinSegments = 1
	}
	return r, validate(r)
}

func configOf(r meta.TopicConfig) Config {
	return Config{
		DefaultDelay: r.DefaultDelay, MaxDelay: r.MaxDelay, DefaultTTL: r.DefaultTTL,
		MaxMessageBytes: r.MaxMessageBytes, PartitionKey: r.PartitionKey,
		MinSegments: r.MinSegments, MaxSegments: r.MaxSegments,
		TargetMessages: r.TargetMessages, TargetBytes: r.TargetBytes, Attributes: maps.Clone(r.Attributes),
	}
}

// maxTarget bounds a target: more than any segment takes.
const maxTarget = 1 << 40

func validate(c meta.TopicConfig) error {
	switch {
	case c.MaxDelay < time.Millisecond || c.MaxDelay > queue.MaxMaxDelay:
		return queue.Invalid("max_delay", queue.MaxMaxDelay.Seconds(), "must be 0.001 to %s seconds", queue.Plain(queue.MaxMaxDelay.Seconds()))
	case c.DefaultDelay < 0 || c.DefaultDelay > c.MaxDelay:
		return queue.Invalid("default_delay", c.MaxDelay.Seconds(), "must be 0 to the topic's max_delay of %s seconds", queue.Plain(c.MaxDelay.Seconds()))
	case c.DefaultTTL < 0 || c.DefaultTTL > queue.MaxTTL:
		return queue.Invalid("default_ttl", queue.MaxTTL.Seconds(), "must be 0 to %s seconds", queue.Plain(queue.MaxTTL.Seconds()))
	case c.MaxMessageBytes < 1 || c.MaxMessageBytes > queue.MaxInlineMessageBytes:
		return queue.Invalid("max_message_bytes", queue.Bound(c.MaxMessageBytes, 1, queue.MaxInlineMessageBytes), "must be 1 to %d", queue.MaxInlineMessageBytes)
	case c.MinSegments < 1 || c.MinSegments > queue.MaxSegments:
		return queue.Invalid("scaling.min_segments", queue.Bound(c.MinSegments, 1, queue.MaxSegments), "must be 1 to %d", queue.MaxSegments)
	case c.MaxSegments != 0 && (c.MaxSegments < c.MinSegments || c.MaxSegments > queue.MaxSegments):
		return queue.Invalid("scaling.max_segments", queue.Bound(c.MaxSegments, c.MinSegments, queue.MaxSegments),
			"must be min_segments (%d) to %d, or 0 for the default", c.MinSegments, queue.MaxSegments)
	case c.TargetMessages < 0 || c.TargetMessages > maxTarget:
		return queue.Invalid("scaling.target_messages_per_second", queue.Bound(c.TargetMessages, 0, maxTarget),
			"must be 1 to %d, or 0 for the default", int64(maxTarget))
	case c.TargetBytes < 0 || c.TargetBytes > maxTarget:
		return queue.Invalid("scaling.target_bytes_per_second", queue.Bound(c.TargetBytes, 0, maxTarget),
			"must be 1 to %d, or 0 for the default", int64(maxTarget))
	}
	if _, err := ParseRule("partition_key", c.PartitionKey); err != nil {
		return err
	}
	return validateAttributes(c.Attributes)
}

func validateAttributes(attributes map[string]string) error {
	if len(attributes) > queue.MaxAttributes {
		return queue.Invalid("attributes", queue.MaxAttributes, "has %d entries, more than %d", len(attributes), queue.MaxAttributes)
	}
	total := 0
	for name, value := range attributes {
		if err := queue.ValidateEntryName("attributes", name); err != nil {
			return err
		}
		if !utf8.ValidString(value) {
			return queue.Invalid("attributes", nil, "a value is not UTF-8")
		}
		total += len(name) + len(value)
	}
	if total > queue.MaxAttributesBytes {
		return queue.Invalid("attributes", queue.MaxAttributesBytes, "is larger than %d bytes", queue.MaxAttributesBytes)
	}
	return nil
}

// scales reports whether the patch is for the leader to act on.
func (p Patch) scales() bool {
	return p.MinSegments != nil || p.MaxSegments != nil || p.TargetMessages != nil || p.TargetBytes != nil
}

// apply gives the config that a patch makes of c.
func (p Patch) apply(c meta.TopicConfig) (meta.TopicConfig, error) {
	set(&c.MinSegments, p.MinSegments)
	set(&c.MaxSegments, p.MaxSegments)
	set(&c.TargetMessages, p.TargetMessages)
	set(&c.TargetBytes, p.TargetBytes)
	set(&c.DefaultDelay, rounded(p.DefaultDelay))
	set(&c.MaxDelay, rounded(p.MaxDelay))
	set(&c.DefaultTTL, rounded(p.DefaultTTL))
	set(&c.MaxMessageBytes, p.MaxMessageBytes)
	set(&c.PartitionKey, p.PartitionKey)
	if len(p.Attributes) > 0 {
		attributes := maps.Clone(c.Attributes)
		if attributes == nil {
			attributes = make(map[string]string, len(p.Attributes))
		}
		for name, value := range p.Attributes {
			if value == nil {
				delete(attributes, name)
				continue
			}
			attributes[name] = *value
		}
		c.Attributes = attributes
		if len(attributes) == 0 {
			c.Attributes = nil
		}
	}
	return c, validate(c)
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// rounded brings a duration to milliseconds, the resolution of all times.
func rounded(d *time.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	r := d.Round(time.Millisecond)
	return &r
}

// sameConfig compares two configs as they are stored.
func sameConfig(a, b meta.TopicConfig) bool {
	return a.DefaultDelay == b.DefaultDelay && a.MaxDelay == b.MaxDelay && a.DefaultTTL == b.DefaultTTL &&
		a.MaxMessageBytes == b.MaxMessageBytes && a.PartitionKey == b.PartitionKey &&
		a.MinSegments == b.MinSegments && a.MaxSegments == b.MaxSegments &&
		a.TargetMessages == b.TargetMessages && a.TargetBytes == b.TargetBytes && maps.Equal(a.Attributes, b.Attributes)
}
