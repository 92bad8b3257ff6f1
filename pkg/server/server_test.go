package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/server"
)

type presigner struct{}

func (presigner) PresignPut(context.Context, string, blob.Terms, time.Time) (blob.Request, error) {
	return blob.Request{}, nil
}

func (presigner) PresignGet(context.Context, string, time.Time) (blob.Request, error) {
	return blob.Request{}, nil
}

func start(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	o.Meta, o.Blob, o.Presigner = memmeta.New(t), memblob.New(t, time.Now, memblob.Options{}), presigner{}
	s, err := server.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = s.Close(ctx)
	})
	return s
}

type answer struct {
	status int
	closed bool // the server ends the connection
	body   string
	err    error
}

func call(c *http.Client, method, url string, body io.Reader) answer {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return answer{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Close, string(data), err}
}

func setUp(t *testing.T, s *server.Server) {
	t.Helper()
	for _, path := range []string{"/v1/topics/t", "/v1/topics/t/subscriptions/s"} {
		if a := call(http.DefaultClient, "PUT", s.URL()+path, strings.NewReader(`{}`)); a.status/100 != 2 {
			t.Fatalf("%s: %+v", path, a)
		}
	}
}

// eventually waits for what another goroutine does soon.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestStopInOrder: first /readyz is red, while calls are answered and their connections end; after the drain
// delay nobody listens, the long poll is answered empty, the call under way gets its answer, and the stores close
// last.
func TestStopInOrder(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		t.Run(map[bool]string{false: "alone", true: "fleet"}[fleet], func(t *testing.T) { stopInOrder(t, fleet) })
	}
}

func stopInOrder(t *testing.T, fleet bool) {
	const delay = 700 * time.Millisecond
	var storesClosed atomic.Bool
	s := start(t, server.Options{Fleet: fleet, DrainDelay: delay, CloseStores: func() error {
		storesClosed.Store(true)
		return errors.New("said at the end")
	}})
	setUp(t, s)
	messages, claims := s.URL()+"/v1/topics/t/messages", s.URL()+"/v1/topics/t/subscriptions/s/claims"
	if a := call(http.DefaultClient, "GET", s.URL()+"/readyz", nil); a.status != 200 || a.closed {
		t.Fatalf("readyz before: %+v", a)
	}
	polled, produced := make(chan answer, 1), make(chan answer, 1)
	go func() { polled <- call(http.DefaultClient, "POST", claims, strings.NewReader(`{"wait":20}`)) }()
	rest, body := io.Pipe()
	slow := &http.Client{Transport: &http.Transport{}}
	go func() { produced <- call(slow, "POST", messages, rest) }()
	if _, err := io.WriteString(body, `{"messages":[`); err != nil { // it is read once the call has begun
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)

	began, closed := time.Now(), make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	eventually(t, "readyz is red", func() bool { return call(http.DefaultClient, "GET", s.URL()+"/readyz", nil).status == 503 })
	if a := call(http.DefaultClient, "POST", claims, strings.NewReader(`{}`)); a.status != 200 || !a.closed {
		t.Errorf("a call while draining: %+v", a)
	}
	select {
	case a := <-polled:
		t.Errorf("the poll ended %v after the word to stop: %+v", time.Since(began), a)
	default:
	}
	if a := <-polled; a.status != 200 || !strings.Contains(a.body, `"messages":[]`) || time.Since(began) < delay {
		t.Errorf("the poll after %v: %+v", time.Since(began), a)
	}
	eventually(t, "nobody listens", func() bool {
		return call(&http.Client{Transport: &http.Transport{}}, "GET", s.URL()+"/readyz", nil).err != nil
	})
	if storesClosed.Load() {
		t.Error("the stores closed before the last call ended")
	}
	if _, err := io.WriteString(body, `{"body":"x"}]}`); err != nil {
		t.Fatal(err)
	}
	_ = body.Close()
	if a := <-produced; a.status != 200 || !strings.Contains(a.body, `"id"`) {
		t.Errorf("the call under way: %+v", a)
	}
	if err := <-closed; err == nil || err.Error() != "said at the end" || !storesClosed.Load() {
		t.Errorf("close: %v", err)
	}
	if err := s.Err(); err != nil {
		t.Errorf("a server that was closed says it ended by itself: %v", err)
	}
}

// TestStopCutShort: the end of Close's context ends the delay and the calls that remain.
func TestStopCutShort(t *testing.T) {
	s := start(t, server.Options{DrainDelay: server.MaxDrainDelay})
	setUp(t, s)
	rest, body := io.Pipe()
	defer func() { _ = body.Close() }()
	produced := make(chan answer, 1)
	go func() { produced <- call(http.DefaultClient, "POST", s.URL()+"/v1/topics/t/messages", rest) }()
	if _, err := io.WriteString(body, `{"messages":[`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	_ = body.CloseWithError(errors.New("given up")) // the client would go on sending
	if a := <-produced; a.err == nil && a.status < 400 {
		t.Errorf("the call that was cut off: %+v", a)
	}
}

func TestRefusedOptions(t *testing.T) {
	door := server.Door{Listen: "127.0.0.1:0"}
	for name, o := range map[string]server.Options{
		"an open door":     {Door: server.Door{Listen: "0.0.0.0:0"}},
		"no address":       {},
		"a negative delay": {Door: door, DrainDelay: -1},
		"a long delay":     {Door: door, DrainDelay: server.MaxDrainDelay + 1},
	} {
		o.Meta, o.Blob, o.Presigner = memmeta.New(t), memblob.New(t, time.Now, memblob.Options{}), presigner{}
		s, err := server.Start(t.Context(), o)
		if err == nil {
			_ = s.Close(t.Context())
		}
		if queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}
