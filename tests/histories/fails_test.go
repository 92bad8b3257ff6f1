//go:build unix

package histories

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/tests/process"
)

// failing stands before a server and fails calls whose path ends as asked, after so many that it lets through.
type failing struct {
	server *httputil.ReverseProxy
	suffix string
	// through are let through, then fails fail, then all go through again.
	through, fails, seen atomic.Int64
}

// ServeHTTP implements http.Handler.
func (f *failing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, f.suffix) {
		if n := f.seen.Add(1) - f.through.Load(); n > 0 && n <= f.fails.Load() {
			http.Error(w, "{}", http.StatusServiceUnavailable)
			return
		}
	}
	f.server.ServeHTTP(w, r)
}

// TestLastLookFails: what looks for the last time, when nothing is disturbed, says so if it cannot, and goes on where it can again.
func TestLastLookFails(t *testing.T) {
	t.Parallel()
	s := process.New(t)
	s.Start()
	at, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	New(Options{Endpoint: func(int) string { return s.URL() }, Patience: 10 * time.Second, Visibility: time.Second}).SetUp(t.Context(), t, 2)
	sdk, err := client.New(s.URL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sdk.Close()
	const messages = 2*page + 10
	for i := range messages {
		results, err := sdk.Produce(t.Context(), Topic, []client.Message{{Key: []byte{'a' + byte(i%16)}, Body: fmt.Append(nil, i)}}, client.Guard{})
		if err != nil || results[0].Err != nil {
			t.Fatal(err, results)
		}
	}
	toEnd := func(u *user) error { return (&reader{}).toEnd(t.Context(), u) }
	drain := func(u *user) error { return u.drain(t.Context()) }
	for _, c := range []struct {
		name, suffix   string
		through, fails int64
		look           func(*user) error
		// told is in the error; "" is none.
		told string
	}{
		{"nothing", "/none", 0, 0, toEnd, ""},
		{"segments", "/segments", 0, 1 << 40, toEnd, "list the segments"},
		{"segments for a while", "/segments", 0, 3, toEnd, ""},
		{"the first read", "/records", 0, 1 << 40, toEnd, "1 of 2, from offset 0"},
		{"a read in the middle", "/records", 1, 1 << 40, toEnd, "what was read: map["},
		{"the last segment's read", "/records", 2, 1 << 40, toEnd, "what was read: map["},
		{"reads for a while", "/records", 2, 3, toEnd, ""},
		{"claims", "/claims", 0, 1 << 40, drain, "503"},
		{"claims for a while", "/claims", 0, 5, drain, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &failing{server: httputil.NewSingleHostReverseProxy(at), suffix: c.suffix}
			f.through.Store(c.through)
			f.fails.Store(c.fails)
			front := httptest.NewServer(f)
			defer front.Close()
			o := Options{Endpoint: func(int) string { return front.URL }, Pace: 5 * time.Millisecond, Patience: 50 * time.Millisecond, Visibility: time.Second}
			if c.told == "" {
				o.Patience = 10 * time.Second
			}
			clients := New(o)
			u := clients.user(0)
			defer u.close()
			err := c.look(u)
			if (err == nil) != (c.told == "") || err != nil && !strings.Contains(err.Error(), c.told) {
				t.Errorf("%v, want %q", err, c.told)
			}
			seen := 0
			for _, r := range clients.rec.History().Reads {
				seen += len(r.Seen)
			}
			if got := seen + len(clients.delivered); err == nil && got != messages {
				t.Errorf("%d messages were seen, want %d", got, messages)
			}
		})
	}
}

// TestNotesThatBreakOff: what a holder did is all there, or the test knows.
func TestNotesThatBreakOff(t *testing.T) {
	const whole = `{"Number":1}` + "\n"
	for _, c := range []struct {
		name  string
		out   io.Reader
		wrong bool
	}{
		{"whole", strings.NewReader(whole + whole), false},
		{"the last line is cut", strings.NewReader(whole + whole + `{"Num`), false},
		{"a line in the middle is cut", strings.NewReader(whole + `{"Num` + "\n" + whole), true},
		{"the pipe breaks", io.MultiReader(strings.NewReader(whole+whole), broken{}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			notes, err := readNotes(c.out)
			if (err != nil) != c.wrong || len(notes) == 0 || !c.wrong && len(notes) != 2 {
				t.Errorf("%d notes, %v", len(notes), err)
			}
		})
	}
	stopped := false
	h := &holder{out: broken{}, stop: func() { stopped = true }}
	h.step(history.Lease{}, func(*history.Lease) {})
	if h.failed() == nil || !stopped {
		t.Error("a holder goes on though its notes cannot be written")
	}
}

// broken can neither be read nor written.
type broken struct{}

var errBroken = errors.New("broken")

// Read implements io.Reader.
func (broken) Read([]byte) (int, error) { return 0, errBroken }

// Write implements io.Writer.
func (broken) Write([]byte) (int, error) { return 0, errBroken }
