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
	// MinSegments, if set, must be what it is: the segments of a topic cannot be changed yet.
	MinSegments *int
	// Attributes are set or replaced one by one; a nil value removes the attribute.
	Attributes map[string]*string
}

// record checks a config and gives it the form that is stored. Errors are Invalid and name the
// field as the API does.
func (c Config) record() (meta.TopicConfig, error) {
	r := meta.TopicConfig{
		DefaultDelay: c.DefaultDelay.Round(time.Millisecond), MaxDelay: c.MaxDelay.Round(time.Millisecond),
		DefaultTTL: c.DefaultTTL.Round(time.Millisecond), MaxMessageBytes: c.MaxMessageBytes,
		PartitionKey: c.PartitionKey, MinSegments: c.MinSegments,
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
		MinSegments: r.MinSegments, Attributes: maps.Clone(r.Attributes),
	}
}

func validate(c meta.TopicConfig) error {
	switch {
	case c.MaxDelay < time.Millisecond || c.MaxDelay > queue.MaxMaxDelay:
		return queue.Invalid("max_delay", queue.MaxMaxDelay.Seconds(), "must be 0.001 to %s seconds", queue.Plain(queue.MaxMaxDelay.Seconds()))
	case c.DefaultDelay < 0 || c.DefaultDelay > c.MaxDelay:
		return queue.Invalid("default_delay", c.MaxDelay.Seconds(), "must be 0 to the topic's max_delay of %s seconds", queue.Plain(c.MaxDelay.Seconds()))
	case c.DefaultTTL < 0 || c.DefaultTTL > queue.MaxTTL:
		return queue.Invalid("default_ttl", queue.MaxTTL.Seconds(), "must be 0 to %s seconds", queue.Plain(queue.MaxTTL.Seconds()))
	case c.MaxMessageBytes < 1 || c.MaxMessageBytes > queue.MaxInlineMessageBytes:
		return queue.Invalid("max_message_bytes", queue.MaxInlineMessageBytes, "must be 1 to %d", queue.MaxInlineMessageBytes)
	case c.MinSegments < 1 || c.MinSegments > queue.MaxSegments:
		return queue.Invalid("scaling.min_segments", queue.MaxSegments, "must be 1 to %d", queue.MaxSegments)
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

// apply gives the config that a patch makes of c.
func (p Patch) apply(c meta.TopicConfig) (meta.TopicConfig, error) {
	if p.MinSegments != nil && *p.MinSegments != c.MinSegments {
		return c, queue.Invalid("scaling.min_segments", c.MinSegments,
			"cannot be changed yet: the topic has %d segments for good", c.MinSegments)
	}
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
		a.MinSegments == b.MinSegments && maps.Equal(a.Attributes, b.Attributes)
}
