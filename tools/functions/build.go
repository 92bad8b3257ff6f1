package main

import (
	"archive/zip"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

type options struct {
	// Root is the module's folder, Out where to write, below it unless absolute.
	Root, Out string
	// Arch is a GOARCH.
	Arch  string
	Names []string
	// MaxZipBytes is the most that a zip may have.
	MaxZipBytes int64
	// Starts is how often to start each function; a fastest start above SlowStart is remarked on.
	Starts    int
	SlowStart time.Duration
}

func build(ctx context.Context, o options, w io.Writer) error {
	out := o.Out
	if !filepath.IsAbs(out) {
		out = filepath.Join(o.Root, out)
	}
	native, err := os.MkdirTemp("", "spillway-functions-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(native) }()

	if _, err := io.WriteString(w, "function        binary bytes      zip bytes  start\n"); err != nil {
		return err
	}
	var errs []error
	for _, name := range o.Names {
		row, err := buildOne(ctx, o, name, out, native)
		if err == nil || row != "" {
			_, failed := fmt.Fprintf(w, "%-12s %s\n", name, row)
			err = errors.Join(err, failed)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// buildOne builds, packs and starts one function; the row tells what came of it.
func buildOne(ctx context.Context, o options, name, out, native string) (row string, err error) {
	file, archive := filepath.Join(out, name, "bootstrap"), filepath.Join(out, name+".zip")
	if err := compile(ctx, o.Root, name, o.Arch, file); err != nil {
		return "", err
	}
	if err := pack(file, archive); err != nil {
		return "", err
	}
	binary, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	zipped, err := os.Stat(archive)
	if err != nil {
		return "", err
	}
	start, err := startTime(ctx, o, name, file, native)
	if zipped.Size() > o.MaxZipBytes {
		err = errors.Join(err, fmt.Errorf("%s: the zip has %d bytes, at most %d: what was linked in?", name, zipped.Size(), o.MaxZipBytes))
	}
	return fmt.Sprintf("%15d %14d  %s", binary.Size(), zipped.Size(), start), err
}

// tags leave out what no function uses: the Go 1.x runtime's RPC, and HTTP/2, which neither the runtime API nor
// DynamoDB nor S3 speaks.
const tags = "lambda.norpc,nethttpomithttp2"

// compile builds one function. Without VCS stamping and with trimmed paths the same source gives the
// same bytes, so that a deployment replaces only what changed.
func compile(ctx context.Context, root, name, arch, file string) error {
	abs, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath",
		"-tags", tags, "-ldflags", "-s -w", "-o", abs, "./functions/"+name)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build functions/%s: %w\n%s", name, err, output)
	}
	return nil
}

// pack writes a zip with the one file, always the same bytes for the same file.
func pack(file, archive string) (err error) {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	z := zip.NewWriter(out)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	header := &zip.FileHeader{Name: filepath.Base(file), Method: zip.Deflate, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	header.SetMode(0o755)
	entry, err := z.CreateHeader(header)
	if err != nil {
		return err
	}
	if _, err := io.Copy(entry, in); err != nil {
		return err
	}
	return z.Close()
}

// startTime measures the function, or a twin that this machine can run, and says the result in words.
func startTime(ctx context.Context, o options, name, file, native string) (string, error) {
	if o.Starts == 0 {
		return "not measured", nil
	}
	note := ""
	if o.Arch != runtime.GOARCH {
		file = filepath.Join(native, name)
		if err := compile(ctx, o.Root, name, runtime.GOARCH, file); err != nil {
			return "", err
		}
		note = ", as " + runtime.GOARCH
	}
	best, err := fastestStart(ctx, file, o.Starts)
	if err != nil {
		return "failed", fmt.Errorf("start %s: %w", name, err)
	}
	if best > o.SlowStart {
		note += fmt.Sprintf(" (slow: more than %v)", o.SlowStart)
	}
	return fmt.Sprintf("%.1f ms%s", best.Seconds()*1000, note), nil
}
