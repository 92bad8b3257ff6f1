package queue

import "time"

// The limits of the system, each defined once. Sizes are bytes unless a name says otherwise.
const (
	// MaxNameBytes bounds topic, link and subscription names (Kafka's bound for topics is 249).
	MaxNameBytes = 200
	// MaxKeyBytes bounds a partition key (DynamoDB's sort key bound is 1,024).
	MaxKeyBytes = 1024
	// MaxHeaders bounds the headers of one message.
	MaxHeaders = 64
	// MaxHeadersBytes bounds names and values of one message's headers together.
	MaxHeadersBytes = 16 << 10
	// MaxHeaderNameBytes bounds one header name.
	MaxHeaderNameBytes = 256
	// MaxDedupIDBytes bounds a message's dedup_id (SQS's bound is 128).
	MaxDedupIDBytes = 128
	// MaxProducerIDBytes bounds the id of an idempotent producer.
	MaxProducerIDBytes = 128
	// MaxIdempotencyKeyBytes bounds the Idempotency-Key header.
	MaxIdempotencyKeyBytes = 255

	// DefaultMaxMessageBytes is a topic's max_message_bytes unless its config says otherwise
	// (SQS's bound is 1 MiB since 2025).
	DefaultMaxMessageBytes = 1 << 20
	// MaxInlineMessageBytes bounds max_message_bytes: a body sent through the server. Larger
	// bodies go by reference.
	MaxInlineMessageBytes = 8 << 20
	// MaxRequestBytes bounds the body of one API call (API Gateway's bound is 10 MB).
	MaxRequestBytes = 10 << 20
	// MaxUploadBytes bounds one uploaded object (S3's bound for a single PUT is 5 GiB).
	MaxUploadBytes = 5 << 30
	// MaxBatchRecords bounds the records of one batch and the messages of one produce call.
	MaxBatchRecords = 10_000
	// MaxBatchIndexBytes bounds the header and index of a batch: what the server reads of an
	// uploaded batch file without reading its bodies.
	MaxBatchIndexBytes = 16 << 20
	// MaxReferences bounds the references of one call, and the uploads asked for in one call.
	MaxReferences = 100
	// MaxReceipts bounds the receipts of one ack, release or extend call.
	MaxReceipts = 10_000

	// InlinePayloadBytes is the size up to which a batch is kept beside its head in the metadata
	// store: below it a DynamoDB write is cheaper and several times faster than an S3 put.
	InlinePayloadBytes = 8 << 10

	// RollRefs is the length of a head's tail at which the writer who reached it rolls: what the
	// tail holds is paid for with every commit. MaxTailRefs is what it may hold at most: the
	// commits that come in while a roll is under way need room (docs/decisions/0006).
	RollRefs    = 32
	MaxTailRefs = 128
	// RollBytes is the size of a head's record at which a writer rolls whatever its length.
	RollBytes = 16 << 10
	// MaxCommitRefs bounds the refs of one commit, MaxCommitRefBytes the keys and headers in them
	// together: a head's record holds 400 KB.
	MaxCommitRefs     = 32
	MaxCommitRefBytes = 128 << 10
	// MaxHeadProducers bounds the idempotent producers that one head remembers.
	MaxHeadProducers = 512
	// ProducerWindow is how long a head remembers an idle idempotent producer; where more than
	// MaxHeadProducers are active, MinProducerWindow at least.
	ProducerWindow    = 15 * time.Minute
	MinProducerWindow = 4 * time.Minute
	// RateWindowCount is the number of windows that the leader keeps rates over (RateWindows).
	RateWindowCount = 4
	// MaxSplit bounds the segments that one change makes of one, or makes one of: it is one transaction.
	MaxSplit = 16
	// LoadBuckets is the number of buckets of a head's slot histogram.
	LoadBuckets = 16

	// MaxClaimMessages bounds max_messages of one claim call.
	MaxClaimMessages = 10_000
	// DefaultClaimMessages is max_messages where a claim does not say (SQS's default is 1; its
	// bound 10).
	DefaultClaimMessages = 10
	// MaxClaimBytes bounds the bodies of one inline claim answer (a Lambda answer holds 6 MB).
	MaxClaimBytes = 32 << 20
	// DefaultClaimBytes is max_bytes where a claim does not say.
	DefaultClaimBytes = 4 << 20
	// MaxWait bounds a long poll (SQS's bound is 20 s; HTTP API ends a call at 30 s).
	MaxWait = 20 * time.Second
	// MinVisibilityTimeout and MaxVisibilityTimeout bound a claim's hold (SQS: 0 s to 12 h).
	MinVisibilityTimeout = time.Second
	MaxVisibilityTimeout = 12 * time.Hour
	// DefaultVisibilityTimeout is a subscription's unless its config says otherwise (as SQS).
	DefaultVisibilityTimeout = 30 * time.Second
	// DefaultMaxInFlight and MaxMaxInFlight bound messages in flight per subscription and
	// segment (SQS: 120,000 per queue).
	DefaultMaxInFlight = 20_000
	MaxMaxInFlight     = 100_000
	// MaxCursorEntries bounds the claims, retries and done ranges one cursor holds, which bounds
	// the record's size.
	MaxCursorEntries = 4096
	// MaxDeliveries bounds a subscription's max_deliveries (as SQS's maxReceiveCount).
	MaxDeliveries = 1000
	// MaxBackoffSteps bounds a subscription's backoff list.
	MaxBackoffSteps = 16

	// DefaultMaxDelay is a topic's max_delay unless its config says otherwise (as SQS: 900 s).
	DefaultMaxDelay = 900 * time.Second
	// MaxMaxDelay bounds what max_delay may be set to.
	MaxMaxDelay = 366 * 24 * time.Hour
	// MaxTTL bounds a message's ttl and a topic's default_ttl.
	MaxTTL = 10 * 366 * 24 * time.Hour

	// MaxSegments bounds the open segments of one topic.
	MaxSegments = 5_000
	// MaxAttributes and MaxAttributesBytes bound a topic's free attributes.
	MaxAttributes      = 64
	MaxAttributesBytes = 16 << 10
	// MaxSubscriptions bounds the subscriptions of one topic.
	MaxSubscriptions = 1_000
	// DefaultPageSize and MaxPageSize bound the limit of a listing.
	DefaultPageSize = 100
	MaxPageSize     = 1_000
	// MaxJSONDepth bounds the nesting of a JSON request or of a body that a partition_key rule
	// looks into.
	MaxJSONDepth = 64

	// PresignTTL is how long a presigned URL lives. The grace period of the compactor is longer.
	PresignTTL = 15 * time.Minute
	// GracePeriod is how long what was replaced stays readable: longer than a page may be cached and a
	// URL made from it lives together, with room for clocks that differ.
	GracePeriod = time.Hour
	// PageTTL is how long a reader goes by a page that it has cached.
	PageTTL = 10 * time.Minute
	// CompactAge is how old a page is at least before it is compacted: nobody looks for an append
	// whose answer was lost in it any more.
	CompactAge = 20 * time.Minute
	// ClockSlack is how far apart the clocks of one system's processes may be.
	ClockSlack = time.Minute
	// MaxCommitDelay bounds how far past its own time a commit may still be tried again.
	MaxCommitDelay = 15 * time.Minute
	// WorkRolls: one in so many rolls leaves a note for the compactor.
	WorkRolls = 8
	// CommitTimeout is how long one commit may take from its start to its head update; a head
	// update that arrives later is void.
	CommitTimeout = 10 * time.Second
	// IdempotencyWindow is how long an Idempotency-Key is remembered.
	IdempotencyWindow = 10 * time.Minute
	// DelayShards is the number of shards of a topic's delayed index.
	DelayShards = 1
)
