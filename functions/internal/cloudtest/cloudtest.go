// Package cloudtest stands in for AWS in the functions' tests: a DynamoDB and an S3 in process, each behind a
// door that fails requests as a test tells it.
//
// Vocabulary: a door passes requests to a store, or does to them what its rule says; a rule judges each request.
//
// Non-goals: signatures, rights and limits of the stores, which the emulator of localstack-tests has.
package cloudtest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa/dynamotest"
)

// Names of what New makes.
const (
	Table  = "spillway-table"
	Bucket = "spillway-bucket"
)

// Cloud is one AWS: a table and a bucket, both empty.
type Cloud struct {
	Dynamo, S3 *Door
}

// New makes a cloud.
func New(t testing.TB) *Cloud {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(Bucket); err != nil {
		t.Fatal(err)
	}
	c := &Cloud{
		Dynamo: &Door{store: dynamotest.New()},
		S3:     &Door{store: gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()},
	}
	if err := dynamometa.CreateTable(t.Context(), c.Client(), Table); err != nil {
		t.Fatal(err)
	}
	return c
}

// Client is a client of the table's service that no rule touches.
func (c *Cloud) Client() *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String("http://dynamodb.test"),
		HTTPClient:  &http.Client{Transport: &Door{store: c.Dynamo.store}},
		Credentials: aws.CredentialsProviderFunc(Credentials),
	})
}

// Credentials are ones that any emulator takes.
func Credentials(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
}

// RoundTrip implements http.RoundTripper without a network, so that a test's clock can be simulated: requests to
// the host dynamodb.test go to the table, others to the bucket.
func (c *Cloud) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Hostname() == "dynamodb.test" {
		return c.Dynamo.RoundTrip(r)
	}
	return c.S3.RoundTrip(r)
}

// Outcome is what happens to a request.
type Outcome struct {
	kind   kind
	status int
	body   string
}

type kind int

const (
	pass kind = iota
	refuse
	hang
	lose
)

// Outcomes other than a store's refusal.
var (
	// Pass lets the store answer.
	Pass = Outcome{}
	// Hang gives no answer until the caller gives up; the store hears nothing.
	Hang = Outcome{kind: hang}
	// Lose lets the store do it, and cuts the connection in place of its answer.
	Lose = Outcome{kind: lose}
)

// Refusals as AWS words them.
var (
	Throttled = Outcome{refuse, http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException","message":"The level of configured provisioned throughput for the table was exceeded."}`}
	Expired   = Outcome{refuse, http.StatusBadRequest, `{"__type":"com.amazon.coral.service#ExpiredTokenException","message":"The security token included in the request is expired"}`}
	SlowDown  = Outcome{refuse, http.StatusServiceUnavailable, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`}
	// ExpiredS3 is S3's word for Expired.
	ExpiredS3 = Outcome{refuse, http.StatusBadRequest, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>`}
)

// Door stands before one store. It is an http.Handler for functions that are programs, and an http.RoundTripper
// for those in the test's own process. Safe for concurrent use.
type Door struct {
	store http.Handler

	mu    sync.Mutex // guards what follows
	rule  func(n int, r *http.Request) Outcome
	times []time.Time
}

// Set gives the door a rule, and forgets what it has seen. The rule is told the number of the request since
// then, from 1. nil passes all.
func (d *Door) Set(rule func(n int, r *http.Request) Outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rule, d.times = rule, nil
}

// Seen lists when the requests since Set came.
func (d *Door) Seen() []time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]time.Time(nil), d.times...)
}

func (d *Door) judge(r *http.Request) Outcome {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times = append(d.times, time.Now())
	if d.rule == nil {
		return Pass
	}
	return d.rule(len(d.times), r)
}

// do carries a request out; ok is false if its connection is to be cut.
func (d *Door) do(r *http.Request) (rec *httptest.ResponseRecorder, ok bool) {
	rec = httptest.NewRecorder()
	switch o := d.judge(r); o.kind {
	case refuse:
		rec.Header().Set("Content-Type", "application/x-amz-json-1.0")
		if strings.HasPrefix(o.body, "<") {
			rec.Header().Set("Content-Type", "application/xml")
		}
		rec.WriteHeader(o.status)
		_, _ = rec.WriteString(o.body)
		return rec, true
	case hang:
		_, _ = io.Copy(io.Discard, r.Body) // net/http looks after the caller only once the body has come
		<-r.Context().Done()
		return rec, false
	case lose:
		d.store.ServeHTTP(rec, r)
		return rec, false
	}
	d.store.ServeHTTP(rec, r)
	return rec, true
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rec, ok := d.do(r)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	for name, values := range rec.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

// RoundTrip implements http.RoundTripper.
func (d *Door) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	in.RequestURI, in.Host = r.URL.RequestURI(), r.URL.Host
	if in.Body == nil {
		in.Body = http.NoBody
	}
	if r.ContentLength > 0 {
		in.Header.Set("Content-Length", fmt.Sprint(r.ContentLength))
	}
	rec, ok := d.do(in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if !ok {
		return nil, io.ErrUnexpectedEOF
	}
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}
