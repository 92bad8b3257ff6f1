// Package cloud opens the stores of a deployment in AWS: a DynamoDB table and an S3 bucket, with the
// credentials and the region that AWS programs usually take.
//
// Vocabulary: a deployment is one table and one bucket that belong together; an endpoint is an emulator's
// address in place of AWS (AWS_ENDPOINT_URL, as the SDK reads it).
//
// Invariants: opening makes no store call, so a function starts quickly and a wrong table shows in the first
// call's error, unless Check looks for it; the SDK's own retries are few and short, because pkg/segment and the callers retry knowing what
// they do.
//
// Non-goals: making tables and buckets (infra), reading an environment of our own.
package cloud

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/pkg/blob/s3blob"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// Config names a deployment.
type Config struct {
	// Table and Bucket are required.
	Table, Bucket string
	// Attempts is how often the SDK sends a request at most, itself included: 1 to 10; 0 means 3.
	Attempts int
	// Region wins over what the environment and the profile say; empty leaves it to them.
	Region string
}

// Stores are a deployment's stores. Both are safe for concurrent use.
type Stores struct {
	Meta *dynamometa.Store
	// Blob is a blob.Presigner, too.
	Blob *s3blob.Store

	config Config
}

const (
	defaultAttempts = 3
	maxAttempts     = 10
	// answerTimeout bounds the wait for the first byte of an answer. DynamoDB's slowest answers
	// take a tenth of it.
	answerTimeout = 10 * time.Second
	// connections bounds the idle connections kept to one store.
	connections = 256
)

// Open prepares the stores of a deployment with the credentials, the region and the endpoints that AWS programs
// usually take. Errors: those of New; Invalid where no region is known; Denied where no configuration can be
// loaded.
func Open(ctx context.Context, c Config) (*Stores, error) {
	cfg, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(HTTPClient()), config.WithRegion(c.Region))
	if err != nil {
		return nil, &queue.Error{Op: "load AWS configuration", Kind: queue.KindDenied, Code: queue.CodeUnauthorized, Err: err}
	}
	if cfg.Region == "" {
		return nil, queue.Invalid("region", nil, "is not known: give one, or set AWS_REGION")
	}
	return New(cfg, c)
}

// New prepares the stores of a deployment on a configuration that the caller made; its HTTPClient should be
// HTTPClient's, its retries are set here. Errors: Invalid for a Config that names none, or is out of range.
func New(cfg aws.Config, c Config) (*Stores, error) {
	switch {
	case c.Table == "":
		return nil, queue.Invalid("table", nil, "is empty")
	case c.Bucket == "":
		return nil, queue.Invalid("bucket", nil, "is empty")
	case c.Attempts == 0:
		c.Attempts = defaultAttempts
	case c.Attempts < 1 || c.Attempts > maxAttempts:
		return nil, queue.Invalid("attempts", maxAttempts, "must be 1 to %d", maxAttempts)
	}
	cfg.RetryMaxAttempts = c.Attempts
	objects, err := s3blob.New(s3.NewFromConfig(cfg, pathStyle(cfg)), c.Bucket, s3blob.Options{})
	if err != nil {
		return nil, err
	}
	return &Stores{
		Meta: dynamometa.New(dynamodb.NewFromConfig(cfg), c.Table, dynamometa.Options{}), Blob: objects, config: c,
	}, nil
}

// HTTPClient makes the client that the stores send by: many connections to one host, and a bound on the wait for
// an answer to begin. Nothing is sent.
func HTTPClient() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = connections
		t.ResponseHeaderTimeout = answerTimeout
	}).WithTimeout(0)
}

// pathStyle puts the bucket into the path where the endpoint is an address or a name of this machine: those
// have no subdomains.
func pathStyle(cfg aws.Config) func(*s3.Options) {
	return func(o *s3.Options) {
		endpoint := o.BaseEndpoint
		if endpoint == nil {
			endpoint = cfg.BaseEndpoint
		}
		if endpoint == nil {
			return
		}
		u, err := url.Parse(*endpoint)
		if err != nil {
			return
		}
		_, ip := netip.ParseAddr(u.Hostname())
		o.UsePathStyle = ip == nil || u.Hostname() == "localhost"
	}
}
