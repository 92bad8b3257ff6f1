package httpapi

import (
	"net/http"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func (s *server) health(w http.ResponseWriter, _ *http.Request) error {
	return s.writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *server) ready(w http.ResponseWriter, r *http.Request) error {
	if s.Ready != nil {
		if err := s.Ready(r.Context()); err != nil {
			return &queue.Error{Op: "ready", Kind: queue.KindUnavailable, Message: "the server is not ready", Err: err}
		}
	}
	return s.writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (s *server) metrics(w http.ResponseWriter, r *http.Request) error {
	if s.Metrics == nil {
		s.noRoute(w, r)
		return nil
	}
	s.Metrics.ServeHTTP(w, r)
	return nil
}

func (s *server) spec(w http.ResponseWriter, _ *http.Request) error {
	buf := s.buffer()
	defer s.recycle(buf)
	buf.Write(s.Spec)
	return writeBody(w, http.StatusOK, "application/yaml", buf)
}

// object passes signed URLs on. Their signature, not the token, is what lets the caller in.
func (s *server) object(w http.ResponseWriter, r *http.Request) {
	if s.Objects == nil {
		s.noRoute(w, r)
		return
	}
	s.Objects.ServeHTTP(w, r)
}
