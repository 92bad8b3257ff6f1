package main

import (
	"archive/zip"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// module makes a module with one function of the given body.
func module(t *testing.T, body string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module example.com/m\n\ngo 1.26\n",
		"functions/one/one.go": "package main\n\nimport (\n\t\"fmt\"\n\t\"net\"\n\t\"os\"\n)\n\nfunc main() {\n" + body + "\n}\n\nvar _ = net.Dial\nvar _ = os.Getenv\nvar _ = fmt.Fprint\n",
	} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// asks connects to the runtime API and asks for an event, and then waits to be ended.
const asks = `
	c, err := net.Dial("tcp", os.Getenv("AWS_LAMBDA_RUNTIME_API"))
	if err != nil {
		panic(err)
	}
	fmt.Fprint(c, "GET /2018-06-01/runtime/invocation/next HTTP/1.1\r\nHost: x\r\n\r\n")
	c.Read(make([]byte, 1))`

func opts(root string) options {
	return options{
		Root: root, Out: "build", Arch: runtime.GOARCH, Names: []string{"one"},
		MaxZipBytes: 5_000_000, Starts: 2, SlowStart: time.Minute,
	}
}

func TestBuild(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("what is built does not run here: not started")
	}
	root := module(t, asks)
	o := opts(root)
	if runtime.GOOS != "linux" {
		o.Starts = 0
	}
	var zips [][]byte
	for range 2 {
		var out strings.Builder
		if err := build(context.Background(), o, &out); err != nil {
			t.Fatal(err)
		}
		t.Log(out.String())
		data, err := os.ReadFile(filepath.Join(root, "build", "one.zip"))
		if err != nil {
			t.Fatal(err)
		}
		zips = append(zips, data)
	}
	if !bytes.Equal(zips[0], zips[1]) {
		t.Error("two builds of the same source differ")
	}
	z, err := zip.NewReader(bytes.NewReader(zips[0]), int64(len(zips[0])))
	if err != nil {
		t.Fatal(err)
	}
	if len(z.File) != 1 || z.File[0].Name != "bootstrap" || z.File[0].Mode() != 0o755 {
		t.Errorf("the zip holds %v", z.File)
	}
	binary, err := os.ReadFile(filepath.Join(root, "build", "one", "bootstrap"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(binary, []byte(root)) {
		t.Error("the binary holds the path of the source")
	}
}

func TestBuildFails(t *testing.T) {
	for name, tc := range map[string]struct {
		body   string
		change func(*options)
		want   string
	}{
		"a zip too big":         {asks, func(o *options) { o.MaxZipBytes = 1000 }, "at most 1000"},
		"source with an error":  {"nothing()", nil, "undefined: nothing"},
		"no such function":      {asks, func(o *options) { o.Names = []string{"two"} }, "build functions/two"},
		"a function that ends":  {`panic("no table")`, nil, "no table"},
		"one that reports that": {initError, nil, "bad config"},
	} {
		t.Run(name, func(t *testing.T) {
			o := opts(module(t, tc.body))
			if tc.change != nil {
				tc.change(&o)
			}
			var out strings.Builder
			err := build(context.Background(), o, &out)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that says %q", err, tc.want)
			}
		})
	}
}

const initError = `
	c, err := net.Dial("tcp", os.Getenv("AWS_LAMBDA_RUNTIME_API"))
	if err != nil {
		panic(err)
	}
	fmt.Fprint(c, "POST /2018-06-01/runtime/init/error HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nbad config")
	c.Read(make([]byte, 1000))
	select {}`

func TestArguments(t *testing.T) {
	for _, args := range [][]string{{"-arch", "mips"}, {"-x"}} {
		if err := run(context.Background(), args, new(strings.Builder)); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
