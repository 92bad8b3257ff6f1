package checks

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// The longest that a file may be, in lines.
const (
	maxLines     = 500
	maxTestLines = 800
	maxMainLines = 100
)

// The shortest that a package's doc comment may be, in lines that are not blank.
const (
	minDocLines        = 1
	minLibraryDocLines = 3
)

// DocComments finds packages that do not say what they are for. Packages of tests alone need not.
func DocComments(src *Source) []Problem {
	var problems []Problem
	for _, p := range src.Packages {
		want := minDocLines
		if strings.HasPrefix(p.Dir, "pkg/") {
			want = minLibraryDocLines
		}
		shipped, got := false, 0
		for _, f := range p.Files {
			if f.Test {
				continue
			}
			shipped = true
			got = max(got, textLines(f.AST.Doc.Text()))
		}
		if shipped && got < want {
			problems = append(problems, Problem{Path: p.Dir, What: fmt.Sprintf(
				"the package's doc comment has %d lines, want at least %d: purpose, vocabulary, invariants, non-goals", got, want)})
		}
	}
	return problems
}

func textLines(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	return n
}

// PackageNames finds packages whose name does not say what is in them.
func PackageNames(src *Source) []Problem {
	var problems []Problem
	for _, p := range src.Packages {
		names := map[string]bool{path.Base(p.Dir): true}
		for _, f := range p.Files {
			names[strings.TrimSuffix(f.AST.Name.Name, "_test")] = true
		}
		for name := range names {
			switch name {
			case "util", "utils", "common", "types", "helper", "helpers", "misc":
				problems = append(problems, Problem{
					Path: p.Dir,
					What: fmt.Sprintf("a package named %q takes in anything: name it after what it does", name),
				})
			}
		}
	}
	return problems
}

// FileLengths finds files that are too long to be read at a sitting.
func FileLengths(src *Source) []Problem {
	var problems []Problem
	for _, p := range src.Packages {
		for _, f := range p.Files {
			limit := maxLines
			switch {
			case f.Generated:
				continue
			case f.Test:
				limit = maxTestLines
			case path.Base(f.Path) == "main.go" && f.AST.Name.Name == "main":
				limit = maxMainLines
			}
			reason, excepted := directive("long", f.AST.Comments...)
			switch {
			case excepted && reason == "":
				problems = append(problems, Problem{Path: f.Path, What: "//checks:long wants a reason"})
			case !excepted && f.Lines > limit:
				problems = append(problems, Problem{
					Path: f.Path, What: fmt.Sprintf("%d lines, at most %d: split it", f.Lines, limit),
				})
			}
		}
	}
	return problems
}

// homePath returns a pattern of folders on somebody's machine. What stands before the first slash
// must not make it part of a longer path, such as an API's. It is put together here so that this
// file does not match it.
func homePath() *regexp.Regexp {
	return regexp.MustCompile(`(^|[^\w.}>)*~-])/` + `(work|root|home/\w+|Users/\w+)/`)
}

// HomePaths finds lines of text files that name such a folder.
func HomePaths(fsys fs.FS, files []string) ([]Problem, error) {
	pattern := homePath()
	var problems []Problem
	for _, name := range files {
		info, err := fs.Lstat(fsys, name)
		if err != nil || !info.Mode().IsRegular() {
			// Listed but removed from the work tree, or a link: not ours to read.
			continue
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			continue
		}
		line := 0
		for each := range bytes.Lines(text) {
			line++
			if found := pattern.Find(each); found != nil {
				problems = append(problems, Problem{
					Path: name, Line: line, What: fmt.Sprintf("names a folder of one machine: %q", bytes.TrimSpace(found)),
				})
			}
		}
	}
	return problems, nil
}
