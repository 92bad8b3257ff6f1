// Package dynamotest is a DynamoDB for tests, in process: minidyn, made to do as the real one does where it does
// not.
//
// Invariants: what a transaction refused left no trace; a token is carried out once.
//
// Non-goals: signatures, rights, limits of size and throughput, streams. Nothing shipped imports it.
package dynamotest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"

	"github.com/truora/minidyn/server"
)

// Server is a DynamoDB with no tables at first, an http.Handler that is safe for concurrent use. What it adds to minidyn:
//
//   - An empty list or map has its type in an answer; minidyn sends none, and forgets it altogether
//     when it rolls a transaction back (mend).
//   - A function of an attribute that is not there makes a condition false; minidyn, which does not
//     stop at the first part that does not hold, calls the expression wrong.
//   - A transaction sent again under its token is done once.
type Server struct {
	inner *server.Server

	mu     sync.Mutex // guards what is below, and makes mending one step with what it mends
	tokens map[string]bool
}

var (
	emptyList = regexp.MustCompile(`"t":\{("NULL":true)?\}`)
	emptyMap  = regexp.MustCompile(`"(p|pf|c|d|r)":\{("NULL":true)?\}`)
	noOperand = regexp.MustCompile(`(contains is not supported for path=NULL|type not supported: size NULL)`)
)

// New makes one.
func New() *Server {
	return &Server{inner: server.NewServer(), tokens: make(map[string]bool)}
}

// ServeHTTP implements http.Handler.
func (f *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	status, answer := f.do(r.Context(), strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "DynamoDB_20120810."), body)
	f.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	_, _ = w.Write(answer) // #nosec G705 -- to a test's own client
}

func (f *Server) do(ctx context.Context, op string, body []byte) (int, []byte) {
	var in struct {
		ClientRequestToken string
		TransactItems      []map[string]struct{ TableName string }
	}
	if op == "TransactWriteItems" {
		if err := json.Unmarshal(body, &in); err != nil {
			return http.StatusBadRequest, nil
		}
		if f.tokens[in.ClientRequestToken] {
			return http.StatusOK, []byte("{}")
		}
	}
	status, answer := f.call(ctx, op, body)
	switch {
	case op == "TransactWriteItems" && status == http.StatusOK:
		f.tokens[in.ClientRequestToken] = true
	case op == "TransactWriteItems":
		for _, item := range in.TransactItems[0] {
			f.mend(ctx, item.TableName)
		}
	case status == http.StatusBadRequest && noOperand.Match(answer):
		answer = []byte(`{"__type":"ConditionalCheckFailedException","message":"The conditional request failed"}`)
	}
	return status, answer
}

func (f *Server) call(ctx context.Context, op string, body []byte) (int, []byte) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", bytes.NewReader(body))
	r.Header.Set("X-Amz-Target", "DynamoDB_20120810."+op)
	rec := httptest.NewRecorder()
	f.inner.ServeHTTP(rec, r)
	return rec.Code, typed(rec.Body.Bytes())
}

func typed(answer []byte) []byte {
	answer = emptyList.ReplaceAll(answer, []byte(`"t":{"L":[]}`))
	return emptyMap.ReplaceAll(answer, []byte(`"$1":{"M":{}}`))
}

// mend gives the empty lists and maps of a table back what they lost.
func (f *Server) mend(ctx context.Context, table string) {
	_, answer := f.call(ctx, "Scan", []byte(`{"TableName":"`+table+`"}`))
	var out struct{ Items []json.RawMessage }
	if err := json.Unmarshal(answer, &out); err != nil {
		panic(err)
	}
	for _, item := range out.Items {
		if bytes.Contains(item, []byte(`{"L":[]}`)) || bytes.Contains(item, []byte(`{"M":{}}`)) {
			f.call(ctx, "PutItem", []byte(`{"TableName":"`+table+`","Item":`+string(item)+`}`))
		}
	}
}
