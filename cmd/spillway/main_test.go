package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this test's binary stand in for the program: scripts run it in processes of its own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"spillway": main})
}

// TestScripts runs the scripts of testdata/script against real servers.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			// The only server is the one that the script starts: port 1 answers nobody.
			env.Setenv("SPILLWAY_ENDPOINT", "http://127.0.0.1:1")
			// Under the race detector a process sleeps for a second before it exits, unless told.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "endpoint": endpoint, "httpget": httpGet, "samechecksum": sameChecksum,
			"trythem": tryThem, "stanzas": stanzas, "await-red": awaitRed,
		},
	})
}

// exits CODE PROGRAM ARGS... runs a program and wants that exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := run2(ts, args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Check(err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// run2 runs a program in the script's folder and environment; its output is the script's.
func run2(ts *testscript.TestScript, name string, args ...string) error {
	path := name
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			path = filepath.Join(dir, name)
			break
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "WORK", "HOME", "TMPDIR", "GORACE", "SPILLWAY_ENDPOINT", "SPILLWAY_TOKEN"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stdout, cmd.Stderr = ts.Stdout(), ts.Stderr()
	return cmd.Run()
}

const startTimeout = 20 * time.Second

// endpoint FILE waits for a server's address file and makes that server the one that is spoken to.
func endpoint(ts *testscript.TestScript, _ bool, args []string) {
	end := time.Now().Add(startTimeout)
	for {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil {
			ts.Setenv("SPILLWAY_ENDPOINT", strings.TrimSpace(string(text)))
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no server after %v: %v", startTimeout, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// httpget PATH STATUS asks the server.
func httpGet(ts *testscript.TestScript, _ bool, args []string) {
	resp, err := http.Get(ts.Getenv("SPILLWAY_ENDPOINT") + args[0])
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if got := strconv.Itoa(resp.StatusCode); got != args[1] {
		ts.Fatalf("%s answers %s, want %s", args[0], got, args[1])
	}
}

// await-red waits until the server, which still answers, is not ready.
func awaitRed(ts *testscript.TestScript, _ bool, _ []string) {
	for end := time.Now().Add(startTimeout); ; time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get(ts.Getenv("SPILLWAY_ENDPOINT") + "/readyz")
		ts.Check(err)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusServiceUnavailable {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("readyz is %d", resp.StatusCode)
		}
	}
}

// samechecksum FILE FILE compares the lines that start with "checksum".
func sameChecksum(ts *testscript.TestScript, neg bool, args []string) {
	line := func(name string) string {
		for l := range strings.Lines(ts.ReadFile(name)) {
			if strings.HasPrefix(l, "checksum ") {
				return strings.TrimSpace(l)
			}
		}
		ts.Fatalf("%s has no checksum", name)
		return ""
	}
	a, b := line(args[0]), line(args[1])
	if (a == b) == neg {
		ts.Fatalf("checksums:\n%s\n%s", a, b)
	}
}

// trythem FILE pastes the commands that `spillway serve` prints into a shell, one by one.
func tryThem(ts *testscript.TestScript, _ bool, args []string) {
	_, commands, ok := strings.Cut(ts.ReadFile(args[0]), "Try, in another terminal:\n")
	if !ok {
		ts.Fatalf("no commands in %s", args[0])
	}
	n := 0
	for l := range strings.Lines(commands) {
		if l = strings.TrimSpace(l); l != "" {
			n++
			ts.Check(run2(ts, "sh", "-c", l))
		}
	}
	if n != 3 {
		ts.Fatalf("%d commands, want 3", n)
	}
}

// stanzas FILE COUNT writes a package index as `apt-cache dumpavail` prints it.
func stanzas(ts *testscript.TestScript, _ bool, args []string) {
	count, err := strconv.Atoi(args[1])
	ts.Check(err)
	var b bytes.Buffer
	for i := range count {
		fmt.Fprintf(&b, "Package: lib%d\nVersion: 1.%d-2\n", i, i)
		if i%3 == 0 {
			fmt.Fprintf(&b, "Source: source%d (1.%d-1)\n", i%100, i)
		}
		fmt.Fprintf(&b, "Architecture: amd64\nDescription: package number %d\n with more to say,\n .\n and more: yes\n\n", i)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o600))
}
