package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
)

// The environment variables that are read, once: the first two by configure, the others, which the functions
// have, too, by serve.
const (
	envEndpoint = "SPILLWAY_ENDPOINT"
	envToken    = "SPILLWAY_TOKEN" // #nosec G101 -- the name of a variable
	envAuth     = "SPILLWAY_AUTH"
	envTable    = "SPILLWAY_TABLE"
	envBucket   = "SPILLWAY_BUCKET"
)

const (
	defaultListen   = "127.0.0.1:8080"
	defaultEndpoint = "http://" + defaultListen
	defaultTimeout  = 30 * time.Second
	// maxTokenBytes is what API Gateway takes of all headers together.
	maxTokenBytes = 10240
)

// globals are the flags that every command has.
type globals struct {
	endpoint, auth, tokenFile, output string
	timeout                           units.Duration
}

// config is what flags and environment come to, validated.
type config struct {
	endpoint string
	// auth is one of the values of --auth, auto not among them.
	auth string
	// token is there whether auth sends it or not, as a server's own; tokenFile is where it is from, if
	// from a file.
	token, tokenFile string
	json             bool
	timeout          time.Duration
}

// configure validates the global flags and the environment; a flag wins.
func configure(g globals, lookup func(string) (string, bool)) (config, error) {
	c := config{endpoint: g.endpoint, timeout: g.timeout.D}
	source := "--endpoint"
	if c.endpoint == "" {
		c.endpoint = defaultEndpoint
		if v, ok := lookup(envEndpoint); ok && v != "" {
			c.endpoint, source = v, envEndpoint
		}
	}
	u, err := url.Parse(c.endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return c, exit.Usagef("%s: %q is not a URL such as %s", source, c.endpoint, defaultEndpoint)
	}
	c.endpoint = strings.TrimRight(c.endpoint, "/")
	switch g.output {
	case outputTable:
	case outputJSON:
		c.json = true
	default:
		return c, exit.Usagef("--output: %q is neither %s nor %s", g.output, outputJSON, outputTable)
	}
	if c.timeout <= 0 {
		return c, exit.Usagef("--timeout: must be above 0")
	}
	if err := c.findToken(g.tokenFile, lookup); err != nil {
		return c, err
	}
	err = c.chooseAuth(g.auth, lookup)
	return c, err
}

// findToken reads the token, if there is one.
func (c *config) findToken(file string, lookup func(string) (string, bool)) (err error) {
	if file != "" {
		c.token, err = readToken(file)
		c.tokenFile = file
		return err
	}
	if v, ok := lookup(envToken); ok && v != "" {
		if c.token, err = checkToken(v); err != nil {
			return exit.Usagef("%s: %w", envToken, err)
		}
	}
	return nil
}

// readToken reads a file that holds a token and nothing else but white space around it.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxTokenBytes+1))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token, err := checkToken(string(text))
	if err != nil {
		return "", exit.Usagef("--token-file: %s: %w", path, err)
	}
	return token, nil
}

func checkToken(text string) (string, error) {
	token := strings.TrimSpace(text)
	switch {
	case token == "":
		return "", errors.New("holds no token")
	case len(text) > maxTokenBytes:
		return "", fmt.Errorf("is longer than %d bytes", maxTokenBytes)
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return "", errors.New("a token is printable ASCII without spaces, on one line")
		}
	}
	return token, nil
}

// newClient makes the SDK's client of the configured server.
func (c *config) newClient(ctx context.Context, version string) (*client.Client, error) {
	o, err := c.clientOptions(ctx, "spillway-cli/"+version)
	if err != nil {
		return nil, err
	}
	// Three tries: a person waits for the answer, and "no server" should come soon.
	o.Retry = client.RetryPolicy{Attempts: 3, AttemptTimeout: c.timeout}
	return client.New(c.endpoint, o)
}
