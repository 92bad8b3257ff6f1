package checks

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Problem is one breach of a rule.
type Problem struct {
	// Path is where it is, relative to the module's root, with forward slashes.
	Path string
	// Line is counted from 1; 0 if the problem is of the whole file or folder.
	Line int
	// What says what is wrong, and what to do if that is not plain.
	What string
}

// String is the form that editors turn into a link.
func (p Problem) String() string {
	if p.Line == 0 {
		return p.Path + ": " + p.What
	}
	return fmt.Sprintf("%s:%d: %s", p.Path, p.Line, p.What)
}

// File is one Go file, read and parsed.
type File struct {
	Path      string
	Lines     int
	Test      bool
	Generated bool
	AST       *ast.File
}

// Package is the Go files of one folder.
type Package struct {
	// Dir is relative to the module's root; "." is the root.
	Dir   string
	Files []*File
}

// Source is all Go code below a root.
type Source struct {
	Fset     *token.FileSet
	Packages []*Package
}

// skipDir says which folders hold no code of ours: those that Go skips, what other tools install
// or write, and what .gitignore keeps out.
func skipDir(name string) bool {
	switch name {
	case "testdata", "vendor", "node_modules", "cdk.out", "bin", "out", "dist":
		return true
	}
	return name != "." && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_"))
}

// Load reads and parses every Go file below the root of fsys.
func Load(fsys fs.FS) (*Source, error) {
	src := &Source{Fset: token.NewFileSet()}
	packages := map[string]*Package{}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipDir(entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || !entry.Type().IsRegular() {
			return nil
		}
		file, err := parse(fsys, src.Fset, name)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		p := packages[dir]
		if p == nil {
			p = &Package{Dir: dir}
			packages[dir] = p
			src.Packages = append(src.Packages, p)
		}
		p.Files = append(p.Files, file)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(src.Packages, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return src, nil
}

func parse(fsys fs.FS, fset *token.FileSet, name string) (*File, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	tree, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &File{
		Path:      name,
		Lines:     bytes.Count(text, []byte("\n")),
		Test:      strings.HasSuffix(name, "_test.go"),
		Generated: ast.IsGenerated(tree),
		AST:       tree,
	}, nil
}

// directive returns the reason that a `//checks:NAME REASON` comment among the groups gives.
func directive(name string, groups ...*ast.CommentGroup) (reason string, found bool) {
	for _, group := range groups {
		if group == nil {
			continue
		}
		for _, comment := range group.List {
			rest, ok := strings.CutPrefix(comment.Text, "//checks:"+name)
			if ok && (rest == "" || rest[0] == ' ') {
				return strings.TrimSpace(rest), true
			}
		}
	}
	return "", false
}
