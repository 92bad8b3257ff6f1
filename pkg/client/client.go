package client

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// DefaultUserAgent is the User-Agent of a Client that is not told another.
const DefaultUserAgent = "spillway-go/1"

const (
	dialTimeout = 5 * time.Second
	keepAlive   = 15 * time.Second
	// idlePerHost is how many idle connections are kept: net/http's default of 2 would make a busy
	// producer dial for nearly every call.
	idlePerHost = 256
	// idleTimeout is shorter than the idle timeout of usual servers and load balancers (60 s): a
	// call that meets a connection which the other side is closing has an unknown outcome.
	idleTimeout = 45 * time.Second
	// transportBuffer holds most batches' headers and the start of their bodies in one write.
	transportBuffer = 64 << 10
)

// Options are the optional arguments of New.
type Options struct {
	// HTTPClient makes the calls; nil makes one whose pool is sized for parallel calls over
	// HTTP/1.1 and that honours the usual proxy variables except on the loopback interface. Its
	// Timeout, if set, must leave room for long polls. No redirect is followed, whatever its
	// CheckRedirect says.
	HTTPClient *http.Client
	// TLS configures the HTTPClient that is made for nil, as with authorities of one's own.
	TLS *tls.Config
	// Token, if not empty, is sent as "Authorization: Bearer". Presigned URLs are called without
	// it.
	Token string
	// Signer, if set, signs the calls of the API, in place of Token. Presigned URLs are called
	// as they are. pkg/client/sigv4 has the one for AWS.
	Signer Signer
	// MaxRequestBytes bounds the body of one call, 1 to queue.MaxRequestBytes, which it is unless
	// set: what stands before the server may take less. A Producer sends larger batches by reference.
	MaxRequestBytes int
	// UserAgent is DefaultUserAgent unless set.
	UserAgent string
	// Retry says how often and how soon a call is made again.
	Retry RetryPolicy
	// Clock tells the time; time.Now unless set. Timers always run on the real time.
	Clock queue.Clock
	// Random makes ids, nonces and jitter; crypto/rand unless set. It is read under a lock.
	Random io.Reader
}

// Client talks to one Spillway server. Safe for concurrent use.
type Client struct {
	http      *http.Client
	base      string // endpoint without a trailing slash
	token     string
	signer    Signer
	maxBody   int64 // of one call
	userAgent string
	retry     RetryPolicy
	clock     queue.Clock
	ids       *queue.IDs
	jitter    *jitter
	owned     *http.Transport // the transport that New made; nil if the caller brought one
}

// New makes a client of the server at endpoint, as in "http://127.0.0.1:8080"; a path is kept as a
// prefix. It makes no call. The error is of KindInvalid, with Field "endpoint", "retry", "signer" or
// "max_request_bytes".
func New(endpoint string, o Options) (*Client, error) {
	base, err := parseEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	retry, err := o.Retry.withDefaults()
	if err != nil {
		return nil, err
	}
	switch {
	case o.Token != "" && o.Signer != nil:
		return nil, queue.Invalid("signer", nil, "excludes a token")
	case o.MaxRequestBytes < 0 || o.MaxRequestBytes > queue.MaxRequestBytes:
		return nil, queue.Invalid("max_request_bytes", int64(queue.MaxRequestBytes), "must be 1 to %d, not %d", queue.MaxRequestBytes, o.MaxRequestBytes)
	}
	source := &lockedReader{r: o.Random}
	if source.r == nil {
		source.r = rand.Reader
	}
	c := &Client{
		base: base, token: o.Token, signer: o.Signer, userAgent: o.UserAgent,
		maxBody: int64(orDefault(o.MaxRequestBytes, queue.MaxRequestBytes)),
		retry:   retry, clock: o.Clock, ids: queue.NewIDs(source),
	}
	if c.clock == nil {
		c.clock = time.Now
	}
	if c.userAgent == "" {
		c.userAgent = DefaultUserAgent
	}
	if o.HTTPClient == nil {
		c.owned = newTransport(o.TLS)
		o.HTTPClient = &http.Client{Transport: c.owned}
	}
	// A copy: the caller may use its own for other things.
	own := *o.HTTPClient
	own.CheckRedirect = noRedirects
	c.http = &own
	seed := c.ids.Nonce()
	c.jitter = &jitter{rand: mathrand.New(mathrand.NewPCG(
		binary.LittleEndian.Uint64(seed[:]), binary.LittleEndian.Uint64(seed[8:])))} // #nosec G404 -- jitter
	return c, nil
}

// Close drops the idle connections of a Client that was not given an HTTPClient. Calls under way are
// not touched, and the Client may be used again.
func (c *Client) Close() {
	if c.owned != nil {
		c.owned.CloseIdleConnections()
	}
}

func parseEndpoint(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", queue.Invalid("endpoint", nil, "is not a URL: %v", err)
	case u.Scheme != "http" && u.Scheme != "https":
		return "", queue.Invalid("endpoint", nil, "must start with http:// or https://")
	case u.Host == "":
		return "", queue.Invalid("endpoint", nil, "names no host")
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", queue.Invalid("endpoint", nil, "must have no user, query or fragment")
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func newTransport(security *tls.Config) *http.Transport {
	// One HTTP/2 connection is one TCP stream: a lost packet would stop every lane and every claim
	// at once, and its flow control is slower than TCP's for large bodies.
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		// ProxyFromEnvironment never proxies localhost and loopback addresses.
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSClientConfig:     security,
		TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleTimeout,
		WriteBufferSize:     transportBuffer,
		ReadBufferSize:      transportBuffer,
		// Batches are compressed by themselves, and a body must arrive as its checksum was made.
		DisableCompression: true,
		Protocols:          protocols,
	}
}

// noRedirects: no call of the API redirects, and following one would send a body, and what says who we
// are, to someone else.
func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// lockedReader makes any source of randomness safe for concurrent use.
type lockedReader struct {
	mu sync.Mutex // guards r
	r  io.Reader
}

func (l *lockedReader) Read(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(b)
}
