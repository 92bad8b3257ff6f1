package httpapi

import (
	"bytes"
	"crypto/sha256"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/pkg/httpapi/strictjson"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// handlerFunc answers a call, or gives the error that it is answered with.
type handlerFunc func(s *server, w http.ResponseWriter, r *http.Request) error

// route is one row of the API.
type route struct {
	method  string
	pattern string
	handle  handlerFunc
}

// Route is a method and a path pattern of the API, for documentation and tests.
type Route struct{ Method, Pattern string }

const (
	pathTopic        = "/v1/topics/{topic}"
	pathSubscription = pathTopic + "/subscriptions/{subscription}"
	pathDelayed      = pathTopic + "/delayed/{id}"
	pathObjects      = "/v1/objects/"
	pathHealth       = "/healthz"
	pathReady        = "/readyz"
)

// routes is the one list of what the API has.
func routes() []route {
	return []route{
		{"GET", "/v1/topics", (*server).listTopics},
		{"PUT", pathTopic, (*server).createTopic},
		{"GET", pathTopic, (*server).getTopic},
		{"PATCH", pathTopic, (*server).updateTopic},
		{"DELETE", pathTopic, (*server).deleteTopic},
		{"GET", pathTopic + "/segments", (*server).listSegments},
		{"GET", pathTopic + "/segments/{segment}/records", (*server).readRecords},
		{"POST", pathTopic + "/segments/{segment}/split", (*server).splitSegment},
		{"POST", pathTopic + "/segments/merge", (*server).mergeSegments},
		{"GET", "/v1/events", (*server).listEvents},

		{"POST", pathTopic + "/messages", (*server).produce},
		{"GET", pathTopic + "/messages", (*server).peek},
		{"GET", pathTopic + "/messages/{id}", (*server).getMessage},
		{"POST", pathTopic + "/uploads", (*server).createUploads},
		{"POST", pathTopic + "/references", (*server).submitReferences},

		{"GET", pathTopic + "/delayed", (*server).listDelayed},
		{"GET", pathDelayed, (*server).getDelayed},
		{"PATCH", pathDelayed, (*server).editDelayed},
		{"DELETE", pathDelayed, (*server).cancelDelayed},

		{"GET", pathTopic + "/subscriptions", (*server).listSubscriptions},
		{"PUT", pathSubscription, (*server).createSubscription},
		{"GET", pathSubscription, (*server).getSubscription},
		{"PATCH", pathSubscription, (*server).updateSubscription},
		{"DELETE", pathSubscription, (*server).deleteSubscription},
		{"POST", pathSubscription + "/claims", (*server).claim},
		{"POST", pathSubscription + "/ack", (*server).ack},
		{"POST", pathSubscription + "/release", (*server).release},
		{"POST", pathSubscription + "/extend", (*server).extend},
		{"POST", pathSubscription + "/seek", (*server).seek},

		{"GET", pathHealth, (*server).health},
		{"GET", pathReady, (*server).ready},
		{"GET", "/metrics", (*server).metrics},
		{"GET", "/v1/openapi.yaml", (*server).spec},
	}
}

// Routes lists the API. Signed object URLs are not part of it: they are opaque.
func Routes() []Route {
	var out []Route
	for _, r := range routes() {
		out = append(out, Route{r.method, r.pattern})
	}
	return out
}

type server struct {
	Deps
	mux       *http.ServeMux
	json      *strictjson.Decoder
	tokenHash [sha256.Size]byte
	// buffers holds *bytes.Buffer of at most maxPooledBytes.
	buffers sync.Pool
}

// maxPooledBytes keeps the buffer of one huge call from staying for ever.
const maxPooledBytes = 1 << 20

// New makes the handler of the whole API.
func New(d Deps) http.Handler {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Patience == 0 {
		d.Patience = DefaultPatience
	}
	s := &server{
		Deps: d, mux: http.NewServeMux(), tokenHash: sha256.Sum256([]byte(d.Token)),
		json:    strictjson.New(strictjson.Limits{Depth: queue.MaxJSONDepth, Items: queue.MaxBatchRecords}),
		buffers: sync.Pool{New: func() any { return new(bytes.Buffer) }},
	}
	byPath := make(map[string]map[string]handlerFunc)
	for _, r := range routes() {
		if byPath[r.pattern] == nil {
			byPath[r.pattern] = make(map[string]handlerFunc)
		}
		byPath[r.pattern][r.method] = r.handle
	}
	for pattern, methods := range byPath {
		s.mux.Handle(pattern, s.dispatch(methods))
	}
	s.mux.HandleFunc(pathObjects, s.object)
	s.mux.HandleFunc(strings.TrimSuffix(pathObjects, "/"), s.noRoute)
	s.mux.HandleFunc("/", s.noRoute)
	return s
}

// dispatch answers a path for its methods. The mux could, but not in the API's error form.
func (s *server) dispatch(methods map[string]handlerFunc) http.Handler {
	allowed := slices.Sorted(maps.Keys(methods))
	if methods[http.MethodGet] != nil {
		allowed = append(allowed, http.MethodHead)
	}
	allow := strings.Join(allowed, ", ")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet // net/http drops the body
		}
		handle := methods[method]
		if handle == nil {
			w.Header().Set("Allow", allow)
			s.fail(w, r, &queue.Error{
				Kind: queue.KindInvalid, Code: queue.CodeMethodNotAllowed, Subject: r.Method,
				Message: "the path takes " + allow,
			})
			return
		}
		if err := handle(s, w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// canonical reports whether the mux takes the path as it is; it answers others with a redirect, which
// for an API is no help.
func canonical(escaped string) bool {
	if escaped == "" || escaped[0] != '/' {
		return false
	}
	clean := path.Clean(escaped)
	return escaped == clean || clean != "/" && escaped == clean+"/"
}

func (s *server) noRoute(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, &queue.Error{Kind: queue.KindNotFound, Code: queue.CodeRouteNotFound, Message: "no such path in the API"})
}

func (s *server) buffer() *bytes.Buffer { return s.buffers.Get().(*bytes.Buffer) }

func (s *server) recycle(b *bytes.Buffer) {
	if b.Cap() <= maxPooledBytes {
		b.Reset()
		s.buffers.Put(b)
	}
}
