package kill

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/tests/load"
	"github.com/spillway-mq/spillway/tests/process"
)

// server is a process that is killed, and its target for the load.
type server struct {
	*process.Server
	client *http.Client
}

func newServer(t *testing.T) *server {
	t.Helper()
	p := process.New(t)
	return &server{p, &http.Client{Timeout: 15 * time.Second, Transport: p.Pool}}
}

// Do implements load.Target.
func (s *server) Do(req *http.Request) ([]byte, int, error) { return load.Send(s.client, req) }

// call makes one API call, as load.Call.
func (s *server) call(ctx context.Context, method, path string, in, out any) error {
	return load.Call(ctx, s, load.Request{Method: method, Path: path, In: in}, out)
}
