package local

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/fileblob"
	"github.com/spillway-mq/spillway/pkg/blob/signedurl"
	"github.com/spillway-mq/spillway/pkg/meta/boltmeta"
	"github.com/spillway-mq/spillway/pkg/queue"
	"github.com/spillway-mq/spillway/pkg/server"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// DefaultListen is where a server listens unless told otherwise; DefaultDir where its data is.
const (
	DefaultListen = server.DefaultListen
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
	// DrainDelay is as in server.Options.
	DrainDelay time.Duration
	// Logger hears of what the server does; nil drops it.
	Logger *slog.Logger
	// Version is told in metrics.
	Version string
}

// Server is a running server. Safe for concurrent use.
type Server struct {
	*server.Server
	dir string
}

// Dir is the data folder.
func (s *Server) Dir() string { return s.dir }

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
	door := server.Door{Listen: o.Listen, Token: o.Token, Insecure: o.Insecure}
	if err := door.Check(); err != nil {
		return nil, err // before a folder is made
	}
	opened := new(stores)
	if err := opened.open(o.Dir); err != nil {
		return nil, errors.Join(err, opened.close())
	}
	signer := signedurl.NewSigner(opened.key)
	running, err := server.Start(ctx, server.Options{
		Door: door, Meta: opened.meta, Blob: opened.files, Presigner: signer,
		Objects: func(objects blob.Store) http.Handler { return signedurl.Handler(objects, signer, time.Now) },
		BaseURL: o.BaseURL, Ready: opened.meta.Ready, Figures: figures{opened}, CloseStores: opened.close,
		DrainDelay: o.DrainDelay, Targets: topics.LocalTargets(), Logger: o.Logger, Version: o.Version,
	})
	if err != nil {
		return nil, errors.Join(err, opened.close())
	}
	return &Server{Server: running, dir: o.Dir}, nil
}

// stores are the parts of a data folder, open.
type stores struct {
	files *fileblob.Store
	meta  *boltmeta.Store
	key   [signedurl.KeyBytes]byte
}

// open opens or makes them. After an error close closes what was opened.
func (s *stores) open(dir string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &queue.Error{Op: "open data folder", Subject: dir, Kind: queue.KindDenied, Message: "the folder cannot be made", Err: err}
	}
	at := layoutOf(dir)
	if err := at.checkUsed(); err != nil {
		return err
	}
	if s.files, err = fileblob.Open(at.objects, time.Now, fileblob.Options{}); err != nil {
		return err
	}
	if s.meta, err = boltmeta.Open(at.meta, boltmeta.Options{}); err != nil {
		return err
	}
	s.key, err = signedurl.LoadOrCreateKey(at.key, rand.Reader)
	return err
}

func (s *stores) close() error {
	var errs []error
	if s.meta != nil {
		errs = append(errs, s.meta.Close())
	}
	if s.files != nil {
		errs = append(errs, s.files.Close())
	}
	return errors.Join(errs...)
}
