package sigv4_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/client/sigv4"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const region = "eu-west-1"

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// clock is a clock that is set by hand.
type clock struct {
	mu sync.Mutex // guards at
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// gateway answers as API Gateway does with IAM authorization, and keeps what it let through.
type gateway struct {
	clock *clock
	// known are the credentials that it takes, by access key.
	known map[string]aws.Credentials
	// refuse, if set, refuses all calls in these words, after the signature was found right.
	refuse string
	// fail answers so many calls with 503.
	fail int
	// after runs after each call.
	after func()

	mu     sync.Mutex // guards what follows
	times  []string   // X-Amz-Date of each call
	bodies []string   // of the calls that were let through
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.after != nil {
		defer g.after()
	}
	w.Header().Set("Date", g.clock.now().UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	body, _ := io.ReadAll(r.Body)
	g.times = append(g.times, r.Header.Get("X-Amz-Date"))
	if why := g.check(r, body); why != "" {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"message":%q}`, why)
		return
	}
	if g.fail > 0 {
		g.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	g.bodies = append(g.bodies, string(body))
	_, _ = io.WriteString(w, `{"name":"t","config":{},"state":"open"}`)
}

// check signs the request anew, as far as it says that it was signed, and compares.
func (g *gateway) check(r *http.Request, body []byte) string {
	auth := r.Header.Get("Authorization")
	_, rest, ok := strings.Cut(auth, "AWS4-HMAC-SHA256 Credential=")
	if !ok {
		return "Missing Authentication Token"
	}
	key, _, _ := strings.Cut(rest, "/")
	credentials, ok := g.known[key]
	if !ok {
		return "The security token included in the request is expired"
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return "no date"
	}
	if g.clock.now().Sub(at).Abs() > 5*time.Minute {
		return "Forbidden"
	}
	_, list, _ := strings.Cut(auth, "SignedHeaders=")
	list, _, _ = strings.Cut(list, ",")
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	for name := range strings.SplitSeq(list, ";") {
		if v := r.Header.Values(name); len(v) > 0 && name != "host" && name != "content-length" {
			again.Header[http.CanonicalHeaderKey(name)] = v
		}
	}
	sum := sha256.Sum256(body)
	if err := v4.NewSigner().SignHTTP(r.Context(), credentials, again, hex.EncodeToString(sum[:]), "execute-api", region, at); err != nil {
		return err.Error()
	}
	if again.Header.Get("Authorization") != auth {
		return "The request signature we calculated does not match the signature you provided."
	}
	return g.refuse
}

// provider gives credentials by turns, the last one for ever.
type provider struct {
	mu    sync.Mutex // guards what follows
	list  []aws.Credentials
	err   error
	asked int
}

func (p *provider) Retrieve(context.Context) (aws.Credentials, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked++
	if p.err != nil {
		return aws.Credentials{}, p.err
	}
	return p.list[min(p.asked, len(p.list))-1], nil
}

func keys(name string) aws.Credentials {
	return aws.Credentials{AccessKeyID: name, SecretAccessKey: "secret of " + name, SessionToken: "token of " + name, Source: "Test"}
}

// setup gives a client of a gateway, whose clock is ahead of the client's by skew.
func setup(t *testing.T, skew time.Duration, p *provider) (*client.Client, *gateway, *sigv4.Signer, *clock) {
	t.Helper()
	ours := &clock{at: start}
	g := &gateway{clock: &clock{at: start.Add(skew)}, known: map[string]aws.Credentials{"A": keys("A"), "B": keys("B")}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	s, err := sigv4.New(p, sigv4.Options{Region: region, Clock: ours.now})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.URL+"/stage", client.Options{Signer: s, Retry: client.RetryPolicy{MinDelay: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, g, s, ours
}

func create(t *testing.T, c *client.Client) error {
	t.Helper()
	_, err := c.CreateTopic(t.Context(), "a.topic", client.TopicConfig{Attributes: map[string]string{"k": "v é"}})
	return err
}

func TestSignaturesAreRight(t *testing.T) {
	t.Parallel()
	c, g, _, _ := setup(t, 0, &provider{list: []aws.Credentials{keys("A")}})
	if err := create(t, c); err != nil {
		t.Fatal(err)
	}
	if _, err := c.GetTopic(t.Context(), "a.topic"); err != nil {
		t.Fatal(err)
	}
	// Queries are signed, too.
	for _, err := range c.ListTopics(t.Context(), "a.b+c d") {
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(g.bodies) != 3 {
		t.Errorf("%d calls went through: %q", len(g.bodies), g.bodies)
	}
}

// TestARetryIsSignedAnew: by the time and with the credentials that hold then.
func TestARetryIsSignedAnew(t *testing.T) {
	t.Parallel()
	first := keys("A")
	first.CanExpire, first.Expires = true, time.Now().Add(50*time.Millisecond)
	p := &provider{list: []aws.Credentials{first, keys("B")}}
	c, g, _, ours := setup(t, 0, p)
	g.fail = 2
	g.after = func() {
		ours.move(time.Minute)
		g.clock.move(time.Minute)
		time.Sleep(60 * time.Millisecond) // past the first ones' end
	}
	if err := create(t, c); err != nil {
		t.Fatal(err)
	}
	want := []string{"20261130T120000Z", "20261130T120100Z", "20261130T120200Z"}
	if !slices.Equal(g.times, want) || p.asked != 2 {
		t.Errorf("signed at %v, want %v; credentials were fetched %d times", g.times, want, p.asked)
	}
}

// TestClock: a clock that is off is found out once, whatever the call, and then known.
func TestClock(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{"behind": 7 * time.Minute, "ahead": -7 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, g, s, _ := setup(t, skew, &provider{list: []aws.Credentials{keys("A")}})
			for range 2 {
				if err := create(t, c); err != nil {
					t.Fatal(err)
				}
			}
			if len(g.times) != 3 || len(g.bodies) != 2 || s.Offset() != skew {
				t.Errorf("%d calls, %d went through, offset %v, want %v", len(g.times), len(g.bodies), s.Offset(), skew)
			}
			g.refuse = "Forbidden"
			if err := create(t, c); !errors.Is(err, client.ErrForbidden) || !strings.Contains(err.Error(), "clock is "+sigv4.Behind(skew)) {
				t.Errorf("%v does not speak of the clock", err)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ words, want string }{
		"no right":     {"Forbidden", "execute-api:Invoke"},
		"other region": {"Credential should be scoped to a valid region.", "AWS_REGION"},
		"unknown key":  {"The security token included in the request is invalid", "get-caller-identity"},
		"signature":    {"Signature expired: 20261130 is now earlier than", "clocks"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl, g, _, _ := setup(t, time.Minute, &provider{list: []aws.Credentials{keys("A")}})
			g.refuse = c.words
			err := create(t, cl)
			if !errors.Is(err, client.ErrForbidden) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%v does not say %q", err, c.want)
			}
			if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "token of") {
				t.Errorf("%v tells secrets", err)
			}
			if len(g.times) != 1 {
				t.Errorf("%d calls", len(g.times))
			}
		})
	}
}

// TestExpiredCredentials are fetched anew, once.
func TestExpiredCredentials(t *testing.T) {
	t.Parallel()
	p := &provider{list: []aws.Credentials{keys("old"), keys("B")}}
	c, _, _, _ := setup(t, 0, p)
	if err := create(t, c); err != nil || p.asked != 2 {
		t.Errorf("%v, fetched %d times", err, p.asked)
	}
	p = &provider{list: []aws.Credentials{keys("old")}}
	c, g, _, _ := setup(t, 0, p)
	if err := create(t, c); !errors.Is(err, client.ErrForbidden) || !strings.Contains(err.Error(), "have expired") || len(g.times) != 2 {
		t.Errorf("%v after %d calls", err, len(g.times))
	}
}

func TestNoCredentials(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*provider{"an error": {err: errors.New("no IMDS role")}, "empty": {list: []aws.Credentials{{}}}} {
		c, g, _, _ := setup(t, 0, p)
		err := create(t, c)
		var missing *sigv4.CredentialsError
		if !errors.As(err, &missing) || !queue.Is(err, queue.KindDenied) || !errors.Is(err, client.ErrUnauthorized) {
			t.Errorf("%s: %v", name, err)
		}
		if len(g.times) != 0 {
			t.Errorf("%s: it was sent", name)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for field, make := range map[string]func() error{
		"credentials": func() error { _, err := sigv4.New(nil, sigv4.Options{Region: region}); return err },
		"region":      func() error { _, err := sigv4.New(&provider{}, sigv4.Options{}); return err },
	} {
		var e *queue.Error
		if err := make(); !errors.As(err, &e) || e.Kind != queue.KindInvalid || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestRegion(t *testing.T) {
	t.Parallel()
	for endpoint, want := range map[string]string{
		"https://abc123.execute-api.eu-west-1.amazonaws.com/":              "eu-west-1",
		"https://abc123.execute-api.eu-west-1.amazonaws.com:443/x":         "eu-west-1",
		"https://abc123.execute-api.cn-north-1.amazonaws.com.cn":           "cn-north-1",
		"https://abc123-vpce-0ab.execute-api.us-gov-west-1.amazonaws.com/": "us-gov-west-1",
		"https://abc123.execute-api.us-east-2.api.aws":                     "us-east-2",
		"http://abc123.execute-api.eu-west-1.amazonaws.com/":               "", // signatures over plain HTTP are asked for, not found
		"https://abc123.execute-api.eu-west-1.amazonaws.com.evil.example":  "",
		"https://execute-api.eu-west-1.amazonaws.com":                      "",
		"https://queue.example":                                            "",
		"http://127.0.0.1:8080":                                            "",
		"https://%":                                                        "",
	} {
		if got, ok := sigv4.Region(endpoint); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", endpoint, got, ok)
		}
	}
}

// TestMaxRequestBytes: in base 64 it leaves room in the 6 MiB of an event.
func TestMaxRequestBytes(t *testing.T) {
	t.Parallel()
	if room := 6<<20 - (sigv4.MaxRequestBytes+2)/3*4; room < 32<<10 || room > 128<<10 {
		t.Errorf("%d bytes are left for headers and context", room)
	}
}
