package reshape

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/tests/process"
)

// server is a process that is killed. It notes every answer of 400 or above to calls that no change may fail.
type server struct {
	*process.Server
	t *testing.T

	mu      sync.Mutex // guards refused
	refused []string
}

func newServer(t *testing.T) *server {
	t.Helper()
	return &server{Server: process.New(t), t: t}
}

// client gives a client of the server that tries each call as often as attempts says.
func (s *server) client(attempts int) *client.Client {
	s.t.Helper()
	c, err := client.New(s.URL(), client.Options{
		HTTPClient: &http.Client{Transport: s},
		Retry:      client.RetryPolicy{Attempts: attempts, MinDelay: 10 * time.Millisecond, MaxDelay: 100 * time.Millisecond},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// neverRefused are the ends of paths of calls that no change of segments may fail.
var neverRefused = []string{"/messages", "/claims", "/ack", "/release", "/records", "/segments", "/events", "/seek"}

// RoundTrip implements http.RoundTripper.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := s.Pool.RoundTrip(r)
	if err != nil || resp.StatusCode < http.StatusBadRequest {
		return resp, err
	}
	if slices.ContainsFunc(neverRefused, func(end string) bool { return strings.HasSuffix(r.URL.Path, end) }) {
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(strings.NewReader(string(body)))
		if strings.Contains(string(body), string(queue.CodeIdempotencyInProgress)) {
			return resp, err // what is left of a call that a kill cut off
		}
		s.mu.Lock()
		s.refused = append(s.refused, fmt.Sprintf("%s %s: %d %s", r.Method, r.URL.Path, resp.StatusCode, body))
		s.mu.Unlock()
	}
	return resp, err
}
