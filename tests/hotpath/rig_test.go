package hotpath

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/fileblob"
	"github.com/spillway-mq/spillway/pkg/blob/memblob"
	"github.com/spillway-mq/spillway/pkg/blob/signedurl"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/boltmeta"
	"github.com/spillway-mq/spillway/pkg/meta/memmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	many      = 100  // messages of a call
	bodyBytes = 1000 // of one message
	messages  = "/v1/topics/orders/messages"
	billing   = "/v1/topics/orders/subscriptions/billing"
)

// rig is a system under measurement. Not safe for concurrent use.
type rig struct {
	system  *assembly.System
	handler http.Handler
	out     sink
	nonces  *queue.IDs
}

// stores are the pairs that a rig can stand on. The memory store checks each record that it is given, so
// its own share is larger than a store's for use; what is above it is the same.
func stores() map[string]func(testing.TB) (meta.Store, blob.Store) {
	return map[string]func(testing.TB) (meta.Store, blob.Store){
		"memory": func(tb testing.TB) (meta.Store, blob.Store) {
			return memmeta.New(tb), memblob.New(tb, time.Now, memblob.Options{})
		},
		"embedded": func(tb testing.TB) (meta.Store, blob.Store) {
			records, err := boltmeta.Open(tb.TempDir()+"/meta.db", boltmeta.Options{})
			if err != nil {
				tb.Fatal(err)
			}
			objects, err := fileblob.Open(tb.TempDir(), time.Now, fileblob.Options{})
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(func() {
				if err := records.Close(); err != nil {
					tb.Error(err)
				}
				if err := objects.Close(); err != nil {
					tb.Error(err)
				}
			})
			return records, objects
		},
	}
}

// newRig makes a topic of as many segments as asked for, with a subscription.
func newRig(tb testing.TB, store string, segments int) *rig {
	tb.Helper()
	records, objects := stores()[store](tb)
	s := assembly.New(assembly.Deps{
		Meta: records, Blob: objects, Presigner: signedurl.NewSigner([signedurl.KeyBytes]byte{1}),
	})
	r := &rig{system: s, handler: s.Handler(httpapi.Deps{}), out: sink{header: http.Header{}}, nonces: queue.NewIDs(nil)}
	r.must(tb, r.request(tb, "PUT", "/v1/topics/orders", fmt.Appendf(nil, `{"scaling":{"min_segments":%d}}`, segments)))
	r.must(tb, r.request(tb, "PUT", billing, []byte(`{"start":"earliest"}`)))
	return r
}

// call is a request that can be made again and again.
type call struct {
	request *http.Request
	body    *bytes.Reader
}

func (r *rig) request(tb testing.TB, method, target string, body []byte, headers ...string) *call {
	tb.Helper()
	u, err := url.Parse(target)
	if err != nil {
		tb.Fatal(err)
	}
	reader := bytes.NewReader(body)
	req := &http.Request{
		Method: method, URL: u, Host: "localhost", Header: http.Header{}, Body: io.NopCloser(reader), ContentLength: int64(len(body)),
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	return &call{req.WithContext(tb.Context()), reader}
}

// must makes a call that has to succeed.
func (r *rig) must(tb testing.TB, c *call) {
	if _, err := c.body.Seek(0, io.SeekStart); err != nil {
		tb.Fatal(err)
	}
	r.out.reset()
	r.handler.ServeHTTP(&r.out, c.request)
	if r.out.status >= http.StatusBadRequest {
		tb.Fatalf("%s %s: %d %s", c.request.Method, c.request.URL, r.out.status, r.out.body.String())
	}
}

// sink is a response that keeps its body in memory that it uses again.
type sink struct {
	header http.Header
	body   bytes.Buffer
	status int
}

func (s *sink) reset() {
	clear(s.header)
	s.body.Reset()
	s.status = 0
}

// Header implements http.ResponseWriter.
func (s *sink) Header() http.Header { return s.header }

// Write implements http.ResponseWriter.
func (s *sink) Write(b []byte) (int, error) { return s.body.Write(b) }

// WriteHeader implements http.ResponseWriter.
func (s *sink) WriteHeader(status int) { s.status = status }

// body is text of a message, as an application's JSON would be: quotes that JSON has to escape, no more.
func body(i int) string {
	text := fmt.Sprintf(`{"order":%d,"note":"`, i)
	return text + strings.Repeat("x", bodyBytes-len(text)-2) + `"}`
}

// jsonBody is a produce call's body of n messages; form is "text" or "base64", keys give each a key.
func jsonBody(tb testing.TB, n int, form string, keys bool) []byte {
	tb.Helper()
	in := wire.ProduceRequest{Messages: make([]wire.MessageIn, n)}
	for i := range in.Messages {
		text := body(i)
		if form == "base64" {
			in.Messages[i].BodyBase64 = wire.Text(base64.StdEncoding.EncodeToString([]byte(text)))
		} else {
			in.Messages[i].Body = wire.Text(text)
		}
		if keys {
			in.Messages[i].Key = fmt.Sprintf("customer-%d", i)
		}
	}
	out, err := json.Marshal(in)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// encoded is a batch of n messages, as pkg/client sends it.
func (r *rig) encoded(tb testing.TB, n int) []byte {
	tb.Helper()
	enc := batch.NewEncoder(batch.Options{})
	for i := range n {
		key := fmt.Appendf(nil, "customer-%d", i)
		if err := enc.Add(&batch.Record{Slot: queue.SlotOf(key), Key: key, Body: []byte(body(i))}); err != nil {
			tb.Fatal(err)
		}
	}
	out, err := enc.Finish(nil, r.nonces.Nonce())
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// receipts reads those of the claim that the sink holds, in JSON.
func (r *rig) receipts(tb testing.TB) []string {
	tb.Helper()
	var list wire.MessageList
	if err := json.Unmarshal(r.out.body.Bytes(), &list); err != nil {
		tb.Fatal(err)
	}
	if len(list.Messages) != many {
		tb.Fatalf("claimed %d messages, not %d", len(list.Messages), many)
	}
	out := make([]string, len(list.Messages))
	for i := range list.Messages {
		out[i] = list.Messages[i].Receipt
	}
	return out
}
