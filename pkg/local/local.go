package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/pkg/assembly"
	"github.com/spillway-mq/spillway/pkg/blob/fileblob"
	"github.com/spillway-mq/spillway/pkg/blob/signedurl"
	"github.com/spillway-mq/spillway/pkg/compact"
	"github.com/spillway-mq/spillway/pkg/delay"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/meta/boltmeta"
	"github.com/spillway-mq/spillway/pkg/meter"
	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// DefaultListen is where a server listens unless told otherwise; DefaultDir where its data is.
const (
	DefaultListen = "127.0.0.1:8080"
	DefaultDir    = "./spillway-data"
)

// Options are what a server may be told; the zero value runs a server on the defaults.
type Options struct {
	// Dir is the data folder, made if it does not exist; empty means DefaultDir.
	Dir string
	// Listen is host and port; port 0 takes a free one. Empty means DefaultListen. An address
	// that is not a loopback one is refused without Token or Insecure.
	Listen string
	// Token, if not empty, must come as bearer token with every call but /healthz.
	Token string
	// Insecure says that someone else guards the door.
	Insecure bool
	// BaseURL completes presigned URLs; empty means the address that each caller used.
	BaseURL string
	// Logger hears of what the server does; nil drops it.
	Logger *slog.Logger
	// Version is told in metrics.
	Version string
}

const (
	// backstopEvery is how often the delayed messages that no claim has promoted are promoted. By
	// the agenda that costs the stores nothing while nothing is due.
	backstopEvery = time.Second
	// reviewEvery is how often all topics are looked at for what the agenda does not know of, such
	// as an entry whose write ended after its caller was told that the outcome is unknown.
	reviewEvery = 10 * time.Minute
	// compactEvery is how often the compactor looks for work; sweepEvery how often for uploads that
	// nobody has submitted.
	compactEvery = 2 * time.Minute
	sweepEvery   = time.Hour
	// headerTimeout and idleTimeout bound what a silent connection may hold.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// maxHeaderBytes bounds the headers of one call.
	maxHeaderBytes = 64 << 10
)

// Server is a running server. Safe for concurrent use.
type Server struct {
	dir    string
	url    string
	http   *http.Server
	files  *fileblob.Store
	meta   *boltmeta.Store
	meter  *meter.Meter
	logger *slog.Logger

	draining atomic.Bool
	hub      *notify.Hub
	// stop ends the background; done is closed when the listener has ended.
	stop       context.CancelFunc
	background sync.WaitGroup
	done       chan struct{}
	serveErr   error // set before done is closed
	closing    sync.Once
	closeErr   error
}

// Start opens the data folder and serves until Close. ctx bounds the start only.
//
// Errors are *queue.Error: Invalid for options that are refused; Unavailable if another process has
// the folder or the address; Denied, Full and Corrupt as the drivers say.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir
	}
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkListen(o); err != nil {
		return nil, err
	}
	s := &Server{dir: o.Dir, meter: meter.New(), logger: o.Logger, done: make(chan struct{})}
	key, err := s.openStores(o)
	if err != nil {
		return nil, errors.Join(err, s.closeStores())
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		err = &queue.Error{Op: "listen", Subject: o.Listen, Kind: queue.KindUnavailable, Message: "cannot listen there", Err: err}
		return nil, errors.Join(err, s.closeStores())
	}
	s.url = "http://" + listener.Addr().String()
	s.serve(listener, o, key)
	return s, nil
}

func (s *Server) openStores(o Options) (key [signedurl.KeyBytes]byte, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return key, &queue.Error{Op: "open data folder", Subject: o.Dir, Kind: queue.KindDenied, Message: "the folder cannot be made", Err: err}
	}
	at := layoutOf(o.Dir)
	if err := at.checkUsed(); err != nil {
		return key, err
	}
	if s.files, err = fileblob.Open(at.objects, time.Now, fileblob.Options{}); err != nil {
		return key, err
	}
	if s.meta, err = boltmeta.Open(at.meta, boltmeta.Options{}); err != nil {
		return key, err
	}
	return signedurl.LoadOrCreateKey(at.key, rand.Reader)
}

func (s *Server) closeStores() error {
	var errs []error
	if s.meta != nil {
		errs = append(errs, s.meta.Close())
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	return errors.Join(errs...)
}

// serve builds everything above the stores and begins to answer.
func (s *Server) serve(listener net.Listener, o Options, key [signedurl.KeyBytes]byte) {
	base, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	objects, signer := s.meter.Blob(s.files), signedurl.NewSigner(key)
	agenda := delay.NewAgenda()
	system := assembly.New(assembly.Deps{Meta: agenda.Watch(s.meter.Meta(s.meta)), Blob: objects, Presigner: signer, Logger: o.Logger})
	s.hub = system.Hub
	metrics := newMetrics(s, system.Lag, o.Version)
	s.http = &http.Server{
		Handler: system.Handler(httpapi.Deps{
			Token: o.Token, BaseURL: o.BaseURL, Observe: metrics.observe, Ready: s.ready,
			Metrics: metrics.handler(), Objects: signedurl.Handler(objects, signer, time.Now),
		}),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	s.background.Go(func() { s.backstop(base, system.Delay, agenda) })
	s.background.Go(func() { s.compact(base, system.Compact) })
	go func() {
		defer close(s.done)
		if err := s.http.Serve(boundConnections(listener)); !errors.Is(err, http.ErrServerClosed) {
			s.serveErr = fmt.Errorf("serve %s: %w", listener.Addr(), err)
		}
	}()
}

// backstop promotes what no claim has promoted: delayed messages of topics that nobody reads.
func (s *Server) backstop(ctx context.Context, delayed *delay.Service, agenda *delay.Agenda) {
	ticker := time.NewTicker(backstopEvery)
	defer ticker.Stop()
	var review time.Time // when the next one is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var err error
		if now := time.Now(); !now.Before(review) {
			// One that fails has noted what to look at again, but may not have come to all topics.
			if _, err = delayed.Review(ctx, agenda); err == nil {
				review = now.Add(reviewEvery)
			}
		} else {
			_, err = delayed.PromoteDue(ctx, agenda)
		}
		if err != nil && ctx.Err() == nil {
			s.logger.Warn("promote due messages", "error", err)
		}
	}
}

// compact keeps the object store in order, as the scheduled function does in AWS.
func (s *Server) compact(ctx context.Context, compactor *compact.Service) {
	ticker := time.NewTicker(compactEvery)
	defer ticker.Stop()
	var swept time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if _, err := compactor.Run(ctx); err != nil && ctx.Err() == nil {
			s.logger.Warn("compact", "error", err)
		}
		if time.Since(swept) < sweepEvery {
			continue
		}
		swept = time.Now()
		if _, err := compactor.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.logger.Warn("sweep abandoned uploads", "error", err)
		}
	}
}

// ready is what /readyz asks: it is red from the moment that Close is called, before anything ends, and
// while the stores can take no writes as far as that can be seen.
func (s *Server) ready(context.Context) error {
	if s.draining.Load() {
		return &queue.Error{Op: "serve", Kind: queue.KindUnavailable, Message: "the server is stopping"}
	}
	return s.meta.Ready()
}

// URL is where the server answers: "http://127.0.0.1:8080".
func (s *Server) URL() string { return s.url }

// Dir is the data folder.
func (s *Server) Dir() string { return s.dir }

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

// Close stops the server in order: it is no longer ready; long polls end, empty; calls under way get
// their answers; the stores close. If ctx ends first, the calls that remain are cut off. Calling it
// again waits for the first call's outcome.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.draining.Store(true)
		s.hub.Close()
		s.stop()
		err := s.http.Shutdown(ctx)
		if err != nil {
			err = errors.Join(err, s.http.Close())
		}
		<-s.done
		s.background.Wait()
		s.closeErr = errors.Join(err, s.closeStores())
	})
	return s.closeErr
}
