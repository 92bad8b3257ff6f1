package spillway

import (
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
)

// Function names one of the four functions. It is the folder of its code, too.
type Function string

// The functions.
const (
	Produce   Function = "produce"
	Consume   Function = "consume"
	Leader    Function = "leader"
	Compactor Function = "compactor"
)

// Functions lists the four, in an order in which each is known to those that call it.
func Functions() []Function { return []Function{Leader, Produce, Consume, Compactor} }

// Architecture is what the functions' code was built for.
type Architecture string

// The architectures, by their names in Go.
const (
	ARM64 Architecture = "arm64"
	AMD64 Architecture = "amd64"
)

// Props is what can be chosen of a deployment. Only CodeDir has no default.
type Props struct {
	// CodeDir is the folder that holds NAME/bootstrap of each function, as tools/functions
	// builds them.
	CodeDir string
	// Architecture is what they were built for; ARM64 if empty.
	Architecture Architecture

	// Existing, if set, is a bucket and table of an earlier deployment to work on in place of
	// new ones. They are left as they are: settings of the bucket and table below have no effect.
	Existing *Existing
	// DestroyData lets bucket and table go with the stack. With false they are retained.
	DestroyData bool
	// UploadExpiry deletes whatever lies under uploads/ for longer; 0 is never. A submitted
	// reference points to its upload for as long as its message lives, so this must be longer
	// than any topic's retention: shorter, it deletes acknowledged messages. Abandoned uploads
	// are the compactor's to delete, whatever is set here. A multiple of 24 h.
	UploadExpiry time.Duration

	// JWT, if set, authorizes calls by bearer tokens; nil is IAM (SigV4).
	JWT *JWT
	// CORSOrigins, if any, may call the API and use presigned URLs from a browser.
	CORSOrigins []string
	// RateLimit (calls a second, steady) and BurstLimit bound the whole API; 2000 and 2000 if 0.
	RateLimit, BurstLimit float64

	// Produce to Compactor tune one function each. The zero value takes the defaults.
	Produce, Consume, Leader, Compactor FunctionProps
	// Compact tunes the compactor, for deployments that are being tried: "age=1m,grace=1m,target=4096".
	// Empty takes the defaults.
	Compact string
	// LogLevel is the functions' lowest level: debug, info, warn or error; info if empty.
	LogLevel string
	// LogRetention is how long logs are kept; awslogs.RetentionDays_ONE_MONTH if empty.
	LogRetention awslogs.RetentionDays
	// Tracing sends traces to X-Ray.
	Tracing bool

	// AlarmTopic, if set, is told when an alarm goes on or off.
	AlarmTopic awssns.ITopic
	// OldestMessageAge is the age of the oldest message not yet consumed that sets off the
	// alarm, at least a minute; 15 minutes if 0.
	OldestMessageAge time.Duration
	// NoDashboard leaves the dashboard out: past the third of an account it costs $3 a month.
	NoDashboard bool
}

// JWT says which tokens an API accepts.
type JWT struct {
	// Issuer is the https URL whose /.well-known/openid-configuration names the keys.
	Issuer string
	// Audience is what a token's aud (or client_id) has to be one of.
	Audience []string
	// Scopes, if any, are what a token has to have one of.
	Scopes []string
}

// Existing names a bucket and table to adopt.
type Existing struct {
	BucketName, TableName string
}

// FunctionProps tunes one function.
type FunctionProps struct {
	// MemoryMiB is 128 to 10,240; the function's default if 0. CPU comes in proportion.
	MemoryMiB int
	// Timeout is 1 second to 15 minutes; the function's default if 0.
	Timeout time.Duration
	// Concurrency is the number of instances that run at most, set aside for the function out
	// of the account's. 0 is the default: 1 for the compactor, no bound for the others.
	// Unreserved (-1) is no bound.
	Concurrency int
}

// Unreserved is a FunctionProps.Concurrency without a bound.
const Unreserved = -1

// defaults are what a FunctionProps's zero fields mean.
//
// HTTP API ends a call at 30 s, so produce and consume stop before. The leader runs once a minute and
// the compactor once in five: each ends before its next run is due. Only the compactor is held to
// one instance: the leader answers control calls as well, which would be refused during its scheduled
// run; what keeps two leaders from acting at once is the lease.
func (f Function) defaults() FunctionProps {
	switch f {
	case Leader:
		return FunctionProps{MemoryMiB: 256, Timeout: 55 * time.Second, Concurrency: Unreserved}
	case Compactor:
		return FunctionProps{MemoryMiB: 1024, Timeout: 270 * time.Second, Concurrency: 1}
	default:
		return FunctionProps{MemoryMiB: 512, Timeout: 29 * time.Second, Concurrency: Unreserved}
	}
}

// function gives f's settings, defaults filled in.
func (p *Props) function(f Function) FunctionProps {
	var set FunctionProps
	switch f {
	case Produce:
		set = p.Produce
	case Consume:
		set = p.Consume
	case Leader:
		set = p.Leader
	case Compactor:
		set = p.Compactor
	}
	def := f.defaults()
	if set.MemoryMiB == 0 {
		set.MemoryMiB = def.MemoryMiB
	}
	if set.Timeout == 0 {
		set.Timeout = def.Timeout
	}
	if set.Concurrency == 0 {
		set.Concurrency = def.Concurrency
	}
	return set
}

// complete gives p with its defaults filled in, or says what is wrong with it.
func (p *Props) complete() (*Props, error) {
	if p == nil {
		return nil, errors.New("spillway: props are missing")
	}
	c := *p
	if c.Architecture == "" {
		c.Architecture = ARM64
	}
	if c.LogLevel == "" {
		c.LogLevel = "info"
	}
	if c.LogRetention == "" {
		c.LogRetention = awslogs.RetentionDays_ONE_MONTH
	}
	if c.RateLimit == 0 {
		c.RateLimit = 2000
	}
	if c.BurstLimit == 0 {
		c.BurstLimit = 2000
	}
	if c.OldestMessageAge == 0 {
		c.OldestMessageAge = 15 * time.Minute
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("spillway: %w", err)
	}
	return &c, nil
}

const day = 24 * time.Hour

// check tells every mistake at once.
func (p *Props) check() error {
	var errs []error
	want := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	want(p.CodeDir != "", "CodeDir is missing")
	want(p.Architecture == ARM64 || p.Architecture == AMD64, "Architecture must be %s or %s, not %q", ARM64, AMD64, p.Architecture)
	switch p.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		want(false, "LogLevel must be debug, info, warn or error, not %q", p.LogLevel)
	}
	want(p.UploadExpiry >= 0 && p.UploadExpiry%day == 0, "UploadExpiry must be a number of whole days, not %v", p.UploadExpiry)
	want(p.RateLimit > 0 && p.BurstLimit > 0, "RateLimit and BurstLimit must be positive")
	want(p.OldestMessageAge >= time.Minute, "OldestMessageAge must be at least a minute, not %v", p.OldestMessageAge)
	if p.JWT != nil {
		want(p.JWT.Issuer != "", "JWT.Issuer is missing")
		want(len(p.JWT.Audience) > 0, "JWT.Audience is missing")
	}
	if e := p.Existing; e != nil {
		want(e.BucketName != "" && e.TableName != "", "Existing names a bucket and a table, or is nil")
		want(!p.DestroyData, "DestroyData with Existing: only the deployment that made the data can destroy it")
	}
	for _, f := range Functions() {
		s := p.function(f)
		want(s.MemoryMiB >= 128 && s.MemoryMiB <= 10240, "%s: MemoryMiB must be 128 to 10240, not %d", f, s.MemoryMiB)
		want(s.Timeout >= time.Second && s.Timeout <= 15*time.Minute, "%s: Timeout must be 1s to 15m, not %v", f, s.Timeout)
		want(s.Concurrency >= Unreserved, "%s: Concurrency must be a number of instances, or %d, not %d", f, Unreserved, s.Concurrency)
	}
	return errors.Join(errs...)
}
