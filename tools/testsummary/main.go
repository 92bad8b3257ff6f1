// Testsummary reads the streams of `go test -json` and says in a few lines what happened: one line
// per package as it ends, the output of each test that failed, each test that was skipped, and the
// counts; with -total only the counts, alone on a line, which is how a run of several streams ends.
//
//	go test -json ./... | testsummary
//	testsummary -total test.json race.json
//
// It exits with 1 if a test failed or was skipped, or if no test ran at all: a suite that runs
// nothing must not look like one that passes. A test in several streams counts once, with its worst
// result. A test that only holds subtests counts only where it failed by itself. Lines that are not
// JSON are passed through.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	total := flag.Bool("total", false, "print nothing but the closing line of counts")
	addFailed := flag.Int("add-failed", 0, "count this many failures besides those of tests")
	flag.Parse()
	ok, err := run(os.Stdout, *total, *addFailed, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "testsummary:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reads the files, or standard input if there are none, and reports whether all is well.
func run(w io.Writer, totalOnly bool, addFailed int, files []string) (bool, error) {
	progress := w
	if totalOnly {
		progress = io.Discard
	}
	s := newSuite()
	if len(files) == 0 {
		if err := s.read(os.Stdin, progress); err != nil {
			return false, err
		}
	}
	for _, name := range files {
		if err := readFile(s, name, progress); err != nil {
			return false, err
		}
	}
	c := s.counts()
	c.failed += addFailed
	if totalOnly {
		if _, err := fmt.Fprintln(w, c); err != nil {
			return false, err
		}
	} else {
		s.printDetails(w, c)
	}
	return c.passed > 0 && c.failed == 0 && c.skipped == 0, nil
}

func readFile(s *suite, name string, progress io.Writer) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return s.read(f, progress)
}
