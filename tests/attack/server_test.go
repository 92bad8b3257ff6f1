package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/local"
)

// target is a server under attack, and what it logs.
type target struct {
	t   *testing.T
	url string
	log *logged
}

// logged collects a log that many write to.
type logged struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// String is what was logged so far.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// secret is in every payload that the tests send; it may not be in the log.
const secret = "s3cr3t-p4yl0ad"

// start runs a server on a folder of its own. When the test is over its log may hold no fault and no
// secret.
func start(t *testing.T) *target {
	t.Helper()
	s := &target{t: t, log: new(logged)}
	server, err := local.Start(t.Context(), local.Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.url = server.URL()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		for line := range strings.Lines(s.log.String()) {
			for _, bad := range []string{"level=ERROR msg=call", "panic", secret, "signature="} {
				if strings.Contains(line, bad) {
					t.Errorf("%q is in the log: %s", bad, line)
				}
			}
		}
	})
	return s
}

// send makes a call, to a path of the server or a whole URL, and checks what every answer has to be.
func (s *target) send(method, path, mediaType string, body []byte) (int, []byte) {
	s.t.Helper()
	url := path
	if strings.HasPrefix(path, "/") {
		url = s.url + path
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
		return 0, nil
	}
	if mediaType != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Errorf("%s %s: %v", method, path, err)
	}
	if resp.StatusCode >= http.StatusInternalServerError {
		s.t.Errorf("%s %s: %d %s", method, path, resp.StatusCode, data)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var refused wire.ErrorAnswer
		if err := json.Unmarshal(data, &refused); err != nil || refused.Error.Code == "" || refused.Error.Message == "" {
			s.t.Errorf("%s %s: %d without an error form: %s", method, path, resp.StatusCode, data)
		}
	}
	return resp.StatusCode, data
}

// json makes a call with a JSON body, given as value or as text.
func (s *target) json(method, path string, in any) (int, []byte) {
	s.t.Helper()
	body, isText := in.(string)
	if !isText && in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			s.t.Errorf("%s %s: %v", method, path, err)
		}
		body = string(data)
	}
	return s.send(method, path, "", []byte(body))
}

// must makes a JSON call that has to succeed, and decodes the answer into out unless that is nil.
func (s *target) must(method, path string, in, out any) {
	s.t.Helper()
	status, data := s.json(method, path, in)
	if status >= http.StatusMultipleChoices {
		s.t.Fatalf("%s %s: %d %s", method, path, status, data)
	}
	if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			s.t.Fatalf("%s %s: %v in %s", method, path, err, data)
		}
	}
}
