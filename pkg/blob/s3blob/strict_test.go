package s3blob_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
)

const (
	// strictVariable set to 1 makes a missing versitygw a failure.
	strictVariable = "SPILLWAY_S3_STRICT"
	strictAccess   = "spillway-test"
	strictSecret   = "spillway-test-secret"
	startTimeout   = 20 * time.Second
)

// startStrict starts versitygw on a port of its own; ok is false if it is not installed and need not
// be.
func startStrict(t testing.TB) (e endpoint, ok bool) {
	t.Helper()
	binary := strictBinary(t)
	if _, err := os.Stat(binary); err != nil {
		if os.Getenv(strictVariable) == "1" {
			t.Fatalf("%s=1, but versitygw is missing: run tools/versitygw (%v)", strictVariable, err)
		}
		t.Log("versitygw is not installed (tools/versitygw): the strict lane has nothing to run against")
		return endpoint{}, false
	}
	address := freeAddress(t)
	root, sidecar := t.TempDir(), t.TempDir()
	log := &bytes.Buffer{}
	// The sidecar stands for extended attributes, which not every file system has.
	cmd := exec.Command(binary, "--access", strictAccess, "--secret", strictSecret, "--port", address,
		"--region", "us-east-1", "--health", "/health", "posix", "--sidecar", sidecar, root)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = t.TempDir()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("versitygw said:\n%s", tail(log.String(), 2000))
		}
	})
	e = endpoint{url: "http://" + address, key: strictAccess, secret: strictSecret, adapt: renameKeys}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(e.url + "/health")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return e, true
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("versitygw does not answer on %s: %v", address, err)
		}
	}
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err = l.Close(); err != nil {
		t.Fatal(err)
	}
	return address
}

// strictBinary is where tools/versitygw installs to.
func strictBinary(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".tools", "bin", "versitygw")
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above this folder")
		}
		dir = filepath.Dir(dir)
	}
}

// versitygw keeps an object as a file at the key's path, so that "a" and "a/b" cannot both be, and no
// part of a key can have more than 255 bytes. renameKeys gives the keys of all calls another form on
// their way out, and back in a listing: folders get an end that no object's name has, and long names
// are cut. The new form keeps the order of keys and their prefixes: ".~/" sorts where "/" does, after
// "-" and "." and before "0", for no valid key holds a "~".
func renameKeys(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("renameKeys", rename), middleware.Before)
	})
}

const (
	folderEnd = ".~/"
	cut       = ".~~/"
	longName  = 200
)

func rename(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
	middleware.InitializeOutput, middleware.Metadata, error,
) {
	in.Parameters = renamed(in.Parameters)
	out, meta, err := next.HandleInitialize(ctx, in)
	if list, ok := out.Result.(*s3.ListObjectsV2Output); ok && err == nil {
		for i := range list.Contents {
			key := strings.ReplaceAll(strings.ReplaceAll(*list.Contents[i].Key, cut, ""), folderEnd, "/")
			list.Contents[i].Key = &key
		}
	}
	return out, meta, err
}

// renamed is a copy: the parameters are the caller's.
func renamed(parameters any) any {
	switch p := parameters.(type) {
	case *s3.PutObjectInput:
		return with(*p, func(p *s3.PutObjectInput) { p.Key = form(p.Key) })
	case *s3.GetObjectInput:
		return with(*p, func(p *s3.GetObjectInput) { p.Key = form(p.Key) })
	case *s3.HeadObjectInput:
		return with(*p, func(p *s3.HeadObjectInput) { p.Key = form(p.Key) })
	case *s3.CreateMultipartUploadInput:
		return with(*p, func(p *s3.CreateMultipartUploadInput) { p.Key = form(p.Key) })
	case *s3.UploadPartInput:
		return with(*p, func(p *s3.UploadPartInput) { p.Key = form(p.Key) })
	case *s3.CompleteMultipartUploadInput:
		return with(*p, func(p *s3.CompleteMultipartUploadInput) { p.Key = form(p.Key) })
	case *s3.AbortMultipartUploadInput:
		return with(*p, func(p *s3.AbortMultipartUploadInput) { p.Key = form(p.Key) })
	case *s3.ListObjectsV2Input:
		return with(*p, func(p *s3.ListObjectsV2Input) { p.Prefix, p.StartAfter = form(p.Prefix), form(p.StartAfter) })
	case *s3.DeleteObjectsInput:
		return with(*p, func(p *s3.DeleteObjectsInput) {
			d := *p.Delete
			d.Objects = append(d.Objects[:0:0], d.Objects...)
			for i := range d.Objects {
				d.Objects[i].Key = form(d.Objects[i].Key)
			}
			p.Delete = &d
		})
	case *s3.CreateBucketInput, *s3.DeleteBucketInput, *s3.ListMultipartUploadsInput:
		return p
	}
	panic(fmt.Sprintf("%T would be sent with its key as it is", parameters))
}

func with[T any](p T, change func(*T)) *T {
	change(&p)
	return &p
}

func form(key *string) *string {
	if key == nil {
		return nil
	}
	names := strings.Split(*key, "/")
	for i, name := range names {
		if len(name) > longName {
			names[i] = name[:longName] + cut + name[longName:]
		}
	}
	out := strings.Join(names, folderEnd)
	return &out
}
