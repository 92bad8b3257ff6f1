package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/background"
	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/later"
	"github.com/spillway-mq/spillway/pkg/lease"
	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Options are what a server is made of. Door.Listen, Meta, Blob and Presigner are required.
type Options struct {
	Door
	Meta      meta.Store
	Blob      blob.Store
	Presigner blob.Presigner
	// Fleet says that other processes work on the same stores: then one of them at a time does the
	// background work of all (pkg/background).
	Fleet bool
	// Objects serves signed object URLs where the object store cannot, of the counted store that it is
	// given; nil means that presigned URLs lead elsewhere.
	Objects func(blob.Store) http.Handler
	// BaseURL completes presigned URLs that are paths; empty means the address that each caller used.
	BaseURL string
	// Ready says whether the stores can do their work, as far as that can be told for nothing: it is asked
	// at each GET /readyz. Nil means that they can.
	Ready func() error
	// Figures are the stores' own metrics; they may be nil.
	Figures prometheus.Collector
	// CloseStores is called when the last call has ended; it may be nil.
	CloseStores func() error
	// DrainDelay is how long the server, told to stop, goes on answering while /readyz is red: as long as
	// whoever sends it calls takes to see that. 0 to MaxDrainDelay.
	DrainDelay time.Duration
	// CacheBytes and Targets are as in assembly.Deps.
	CacheBytes int64
	Targets    topics.Targets
	// Logger hears of what the server does; nil drops it.
	Logger *slog.Logger
	// Version is told in metrics.
	Version string
}

// MaxDrainDelay bounds Options.DrainDelay.
const MaxDrainDelay = 10 * time.Minute

const (
	// headerTimeout and idleTimeout bound what a silent connection may hold.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxHeaderBytes bounds the headers of one call.
	maxHeaderBytes = 64 << 10
)

// Server is a running server. Safe for concurrent use.
type Server struct {
	o     Options
	url   string
	http  *http.Server
	meter *meter.Meter

	draining atomic.Bool
	hub      *notify.Hub
	// stop ends the background; done is closed when the listener has ended.
	stop       context.CancelFunc
	background sync.WaitGroup
	later      later.Work
	done       chan struct{}
	serveErr   error // set before done is closed
	closing    sync.Once
	closeErr   error
}

// Start listens, and serves until Close. ctx bounds the start only. If it fails the stores are left open.
//
// Errors are *queue.Error: Invalid for options that are refused; Unavailable if another process has the
// address.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.DrainDelay < 0 || o.DrainDelay > MaxDrainDelay {
		return nil, queue.Invalid("drain_delay", MaxDrainDelay.Seconds(), "must be 0 to %s seconds", queue.Plain(MaxDrainDelay.Seconds()))
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, &queue.Error{Op: "listen", Subject: o.Listen, Kind: queue.KindUnavailable, Message: "cannot listen there", Err: err}
	}
	s := &Server{o: o, url: "http://" + listener.Addr().String(), meter: meter.New(), done: make(chan struct{})}
	s.serve(listener)
	return s, nil
}

// serve builds everything above the stores and begins to answer.
func (s *Server) serve(listener net.Listener) {
	base, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	objects, agenda, ids := s.meter.Blob(s.o.Blob), delay.NewAgenda(), queue.NewIDs(nil)
	records := agenda.Watch(s.meter.Meta(s.o.Meta))
	woken := make(chan struct{}, 1)
	system := assembly.New(assembly.Deps{
		Meta: records, Blob: objects, Presigner: s.o.Presigner, IDs: ids, Logger: s.o.Logger, CacheBytes: s.o.CacheBytes,
		Marked: s.o.Fleet, Targets: s.o.Targets, Later: s.afterwards(), Wake: func() {
			select {
			case woken <- struct{}{}:
			default: // it will look
			}
		},
	})
	s.hub = system.Hub
	metrics := newMetrics(s.meter, s.o.Figures, &lagCollector{system.Lag, s.o.Logger}, s.o.Version)
	around := httpapi.Deps{
		Token: s.o.Token, BaseURL: s.o.BaseURL, Observe: metrics.observe, Ready: s.ready, Metrics: metrics.handler(),
	}
	if s.o.Objects != nil {
		around.Objects = s.o.Objects(objects)
	}
	s.http = &http.Server{
		Handler:           s.sendAway(system.Handler(around)),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelDebug),
	}
	worker := background.New(background.Deps{
		Delay: system.Delay, Compact: system.Compact, Scale: system.Scale, Led: metrics.led, Woken: woken, Agenda: agenda, Leases: lease.New(records, ids, time.Now), Logger: s.o.Logger,
	})
	s.background.Go(func() {
		if s.o.Fleet {
			worker.RunInFleet(base)
		} else {
			worker.RunAlone(base)
		}
	})
	go func() {
		defer close(s.done)
		if err := s.http.Serve(boundConnections(listener)); !errors.Is(err, http.ErrServerClosed) {
			s.serveErr = fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	}()
}

// afterwards is for stores that are far away: on the embedded ones a roll takes no longer than a commit.
func (s *Server) afterwards() func(func()) {
	if !s.o.Fleet {
		return nil
	}
	return s.later.Go
}

// sendAway has each connection end with its answer once the server is draining: a connection that a client or a
// load balancer keeps for later would be closed under its next call.
func (s *Server) sendAway(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining.Load() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// ready is what /readyz asks: it is red from the moment that Close is called, before anything ends, and
// while the stores can take no writes as far as that can be seen.
func (s *Server) ready(context.Context) error {
	if s.draining.Load() {
		return &queue.Error{Op: "serve", Kind: queue.KindUnavailable, Message: "the server is stopping"}
	}
	if s.o.Ready == nil {
		return nil
	}
	return s.o.Ready()
}

// URL is where the server answers: "http://127.0.0.1:8080".
func (s *Server) URL() string { return s.url }

// Meter tells what has been asked of the stores since the start.
func (s *Server) Meter() meter.Snapshot { return s.meter.Snapshot() }

// Done is closed when the server answers no more, by Close or by itself; Err then says why.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is why the server ended by itself; nil while it runs and after Close.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.serveErr
	default:
		return nil
	}
}

// Close stops the server in order. It is no longer ready, and answers for the drain delay, ending connections as
// it does. Then it listens no more; long polls end, empty; calls under way get their answers; the stores close.
// If ctx ends first, the calls that remain are cut off. Calling it again waits for the first call's outcome.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.draining.Store(true)
		s.stop()
		s.linger(ctx)
		s.hub.Close()
		err := s.http.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, s.http.Close())
		}
		<-s.done
		s.background.Wait()
		err = errors.Join(err, s.later.Wait(ctx))
		if s.o.CloseStores != nil {
			err = errors.Join(err, s.o.CloseStores())
		}
		s.closeErr = err
	})
	return s.closeErr
}

// linger waits for the drain delay, unless nobody can call any more.
func (s *Server) linger(ctx context.Context) {
	delay := time.NewTimer(s.o.DrainDelay)
	defer delay.Stop()
	select {
	case <-delay.C:
	case <-s.done:
	case <-ctx.Done():
	}
}
