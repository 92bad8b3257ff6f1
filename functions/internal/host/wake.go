package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// wakeTimeout bounds the call that wakes the leader: a commit waits for it, at most once in 20 seconds for
// each topic.
const wakeTimeout = time.Second

// waker gives what wakes the leader: an asynchronous call of its function, by Lambda's Invoke with the
// function's own right to it. One request does not need Lambda's client, which would be a tenth of the
// program. Nil where no leader is configured: then its schedule alone has it run.
func (c Config) waker(logger *slog.Logger) func() {
	if c.Leader == "" {
		return nil
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
		defer cancel()
		if err := c.invokeLeader(ctx); err != nil {
			logger.WarnContext(ctx, "the leader could not be woken; its schedule has it run", "error", err.Error())
		}
	}
}

func (c Config) invokeLeader(ctx context.Context) error {
	body := []byte(`{"source":"` + WakeSource + `"}`)
	sum := sha256.Sum256(body)
	to := c.LambdaURL + "/2015-03-31/functions/" + url.PathEscape(c.Leader) + "/invocations"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Amz-Invocation-Type", "Event")
	credentials, err := c.AWS.Credentials.Retrieve(ctx)
	if err != nil {
		return err
	}
	if err := v4.NewSigner().SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), "lambda", c.AWS.Region, time.Now()); err != nil {
		return err
	}
	resp, err := c.AWS.HTTPClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	if resp.StatusCode >= http.StatusMultipleChoices {
		return &invokeError{resp.StatusCode}
	}
	return nil
}

type invokeError struct{ status int }

func (e *invokeError) Error() string { return "Lambda answers " + http.StatusText(e.status) }

// lambdaURL is where Lambda answers in a region, or an emulator in its place.
func lambdaURL(getenv func(string) string, region string) string {
	for _, name := range []string{"AWS_ENDPOINT_URL_LAMBDA", "AWS_ENDPOINT_URL"} {
		if u := getenv(name); u != "" {
			return strings.TrimSuffix(u, "/")
		}
	}
	domain := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain = "amazonaws.com.cn"
	}
	return "https://lambda." + region + "." + domain
}
