package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// event is one line of `go test -json`, as `go doc test2json` and `go help buildjson` define it.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

// outcome is what became of a test. The order matters: of two streams the greater wins.
type outcome int

const (
	unknown outcome = iota
	passed
	skipped
	failed
)

// key names a test; an empty test names the package itself.
type key struct{ pkg, test string }

// result is what is known of one test.
type result struct {
	outcome outcome
	// running is true between a test's start and its end in the stream being read.
	running bool
	output  strings.Builder
}

// counts is the closing line.
type counts struct{ passed, failed, skipped int }

// String is the form in which a reader, or a program, finds the counts.
func (c counts) String() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", c.passed, c.failed, c.skipped)
}

// suite gathers the results of any number of streams.
type suite struct {
	results map[key]*result
	// builds holds the compiler's output by import path.
	builds map[string]*strings.Builder
}

func newSuite() *suite {
	return &suite{results: map[key]*result{}, builds: map[string]*strings.Builder{}}
}

func (s *suite) result(k key) *result {
	r := s.results[k]
	if r == nil {
		r = &result{}
		s.results[k] = r
	}
	return r
}

// read takes in one stream and writes a line to progress for each package that ends.
func (s *suite) read(r io.Reader, progress io.Writer) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if text := bytes.TrimRight(line, "\r\n"); len(text) > 0 {
			s.line(text, progress)
		}
		if err == io.EOF {
			s.endStream()
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *suite) line(text []byte, progress io.Writer) {
	var e event
	if text[0] != '{' || json.Unmarshal(text, &e) != nil || e.Action == "" {
		_, _ = fmt.Fprintf(progress, "%s\n", text)
		return
	}
	s.event(e)
	if e.Test == "" && e.Package != "" {
		switch e.Action {
		case "pass":
			_, _ = fmt.Fprintf(progress, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
		case "fail":
			_, _ = fmt.Fprintf(progress, "FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
		}
	}
}

func (s *suite) event(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		b := s.builds[e.ImportPath]
		if b == nil {
			b = &strings.Builder{}
			s.builds[e.ImportPath] = b
		}
		b.WriteString(e.Output)
	case "run":
		s.result(k).running = true
	case "output":
		s.result(k).output.WriteString(e.Output)
	case "pass":
		s.end(k, passed)
	case "skip":
		// A package is "skipped" when it has no tests: nothing to report.
		if e.Test != "" {
			s.end(k, skipped)
		}
	case "fail":
		if b := s.builds[e.FailedBuild]; b != nil {
			s.result(k).output.WriteString(b.String())
		}
		s.end(k, failed)
	}
}

func (s *suite) end(k key, o outcome) {
	r := s.result(k)
	r.running = false
	r.outcome = max(r.outcome, o)
	if o == passed && r.outcome == passed {
		r.output.Reset()
	}
}

// endStream fails each test that began and never ended: its process died.
func (s *suite) endStream() {
	for k, r := range s.results {
		if r.running {
			r.output.WriteString("(the test never ended)\n")
			s.end(k, failed)
		}
	}
}

// explained reports whether a failed test or package, or a skipped or passed test, says no more
// than the tests inside it do.
func (s *suite) explained() map[key]bool {
	said := map[key]bool{}
	for k, r := range s.results {
		if k.test == "" {
			continue
		}
		for parent := range parents(k) {
			if p := s.results[parent]; p != nil && (p.outcome == r.outcome || p.outcome == passed) {
				said[parent] = true
			}
		}
	}
	return said
}

// parents yields the tests that hold k, and its package.
func parents(k key) func(yield func(key) bool) {
	return func(yield func(key) bool) {
		for name := k.test; ; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			if !yield(key{k.pkg, name}) {
				return
			}
		}
		yield(key{k.pkg, ""})
	}
}

// counted returns the results that count, in order of package and name.
func (s *suite) counted(o outcome) []key {
	said := s.explained()
	var keys []key
	for k, r := range s.results {
		// A package counts only when it failed and no test of it did: it did not compile, or died.
		if r.outcome == o && !said[k] && (k.test != "" || o == failed) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return strings.Compare(a.pkg+"\x00"+a.test, b.pkg+"\x00"+b.test)
	})
	return keys
}

func (s *suite) counts() counts {
	return counts{
		passed:  len(s.counted(passed)),
		failed:  len(s.counted(failed)),
		skipped: len(s.counted(skipped)),
	}
}

// printDetails writes what a person needs in order to act: failures whole, skips with their reason.
func (s *suite) printDetails(w io.Writer, c counts) {
	for _, k := range s.counted(failed) {
		_, _ = fmt.Fprintf(w, "\n--- failed: %s\n%s", k, s.results[k].output.String())
	}
	for _, k := range s.counted(skipped) {
		_, _ = fmt.Fprintf(w, "\n--- skipped: %s\n%s", k, s.results[k].output.String())
	}
	packages := map[string]bool{}
	for k := range s.results {
		if k.test != "" {
			packages[k.pkg] = true
		}
	}
	_, _ = fmt.Fprintf(w, "\ntests in %d packages: %v\n", len(packages), c)
}

// String names a test as a person would type it.
func (k key) String() string {
	if k.test == "" {
		return k.pkg
	}
	return k.pkg + " " + k.test
}
