// Package afterwards has a function's work go on once its call is answered.
//
// Lambda lets a function's process stand still as soon as the runtime and every extension have asked for what is
// next. So the process registers as an extension of itself (Lambda's "internal extension"), which asks only when the
// call and the work that it left are done. The caller does not wait for that; it is part of the billed time, as it
// would be before the answer.
//
// Source: Lambda's developer guide, "Using the Lambda Extensions API to create extensions".
//
// Invariants: without the API the work is done before the answer; a call holds the process until its deadline at most.
//
// Non-goals: extensions of other processes; work that must happen, as Lambda may end the process at any time.
package afterwards

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/spillway-mq/spillway/pkg/later"
)

// Extension is the process as an extension of itself. Nil is none: what is left for later is done at once.
type Extension struct {
	later.Work

	api    string // of extensions: http://HOST:PORT/2020-01-01/extension
	id     string // what Lambda calls this one
	http   http.Client
	logger *slog.Logger

	mu sync.Mutex // guards ended
	// ended holds a channel for each call that is under way, closed at its end: Lambda tells of a call twice, to the
	// runtime and to the extension, in either order.
	ended map[string]chan struct{}
}

const (
	extensionName = "spillway-afterwards"
	// registerTimeout bounds the registration, which Lambda answers at once.
	registerTimeout = 2 * time.Second
	// nextTries bounds how often an extension's question for what is next may fail: the process ends after that,
	// as it does when the runtime's fails, and Lambda starts it anew.
	nextTries = 3
	// maxEnded bounds the calls of which the one side has heard and the other not: Lambda makes one at a time.
	maxEnded = 100
)

// Register makes the process an extension of itself; nil where there is no Lambda (no runtimeAPI), or none that has
// extensions. It has to be before the runtime asks for its first event.
func Register(runtimeAPI string, logger *slog.Logger) *Extension {
	if runtimeAPI == "" {
		return nil
	}
	a := &Extension{
		api: "http://" + runtimeAPI + "/2020-01-01/extension", logger: logger, ended: make(map[string]chan struct{}),
	}
	ctx, cancel := context.WithTimeout(context.Background(), registerTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.api+"/register", bytes.NewReader([]byte(`{"events":["INVOKE"]}`)))
	if err == nil {
		req.Header.Set("Lambda-Extension-Name", extensionName)
		req.Header.Set("Content-Type", "application/json")
		var header http.Header
		if header, _, err = a.do(req); err == nil {
			a.id = header.Get("Lambda-Extension-Identifier")
		}
	}
	if a.id == "" {
		logger.Debug("no extension: what could be done after the answer is done before", "error", fmt.Sprint(err))
		return nil
	}
	return a
}

// do makes a request and reads the answer, which is small.
func (a *Extension) do(req *http.Request) (http.Header, []byte, error) {
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("extensions API answers %d", resp.StatusCode)
	}
	return resp.Header, data, err
}

// invocation is Lambda's word to an extension that a call begins.
type invocation struct {
	RequestID string `json:"requestId"`
	// Deadline is when Lambda ends the call, in ms since 1970.
	Deadline int64 `json:"deadlineMs"`
}

// run asks for one call after the other, each time once the last and what it left are done. It returns if Lambda
// does not answer any more.
func (a *Extension) run() error {
	for {
		call, err := a.next()
		if err != nil {
			return err
		}
		a.hold(call)
	}
}

func (a *Extension) next() (call invocation, err error) {
	for range nextTries {
		var req *http.Request
		// The answer comes with the next call, which may be in an hour: no timeout.
		if req, err = http.NewRequestWithContext(context.Background(), http.MethodGet, a.api+"/event/next", http.NoBody); err != nil {
			return call, err
		}
		req.Header.Set("Lambda-Extension-Identifier", a.id)
		var data []byte
		if _, data, err = a.do(req); err == nil {
			if err = json.Unmarshal(data, &call); err == nil {
				return call, nil
			}
		}
	}
	return call, err
}

// hold waits for the end of a call and of what runs, but not longer than Lambda does.
func (a *Extension) hold(call invocation) {
	ctx, cancel := context.WithDeadline(context.Background(), time.UnixMilli(call.Deadline))
	defer cancel()
	defer a.forget(call.RequestID)
	select {
	case <-a.end(call.RequestID):
	case <-ctx.Done():
		return
	}
	if err := a.Wait(ctx); err != nil {
		a.logger.Warn("work after an answer was not done in time", "request_id", call.RequestID)
	}
}

// end is the channel that the end of a call closes.
func (a *Extension) end(requestID string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	done := a.ended[requestID]
	if done == nil {
		if len(a.ended) >= maxEnded {
			clear(a.ended)
		}
		done = make(chan struct{})
		a.ended[requestID] = done
	}
	return done
}

func (a *Extension) forget(requestID string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.ended, requestID)
}

// Later is what runs work; nil where there is no extension.
func (a *Extension) Later() func(work func()) {
	if a == nil {
		return nil
	}
	return a.Go
}

// Handler is what Lambda's runtime is to call for handle, which is as in lambda.Start. To be called once.
func (a *Extension) Handler(handle any) lambda.Handler {
	inner := lambda.NewHandler(handle)
	if a == nil {
		return inner
	}
	go func() {
		a.logger.Error("extension", "error", a.run().Error())
		os.Exit(1)
	}()
	return held{inner, a}
}

// held tells the extension when a call has ended.
type held struct {
	lambda.Handler
	after *Extension
}

// Invoke implements lambda.Handler.
func (h held) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if call, ok := lambdacontext.FromContext(ctx); ok {
		defer close(h.after.end(call.AwsRequestID))
	}
	return h.Handler.Invoke(ctx, payload)
}
