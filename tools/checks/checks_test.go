package checks

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestModule holds this module to the rules.
func TestModule(t *testing.T) {
	root := moduleRoot(t)
	fsys := os.DirFS(root)
	src, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if len(src.Packages) < 2 {
		t.Fatalf("found %d packages: looking in the wrong place", len(src.Packages))
	}
	rules := map[string]func(*Source) []Problem{
		"doc comments":  DocComments,
		"package names": PackageNames,
		"file lengths":  FileLengths,
		"package state": PackageState,
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, p := range rule(src) {
				t.Error(p)
			}
		})
	}
	tracked := trackedFiles(t, root)
	for name, rule := range map[string]func(fs.FS, []string) ([]Problem, error){
		"home paths": HomePaths,
		"links":      Links,
	} {
		t.Run(name, func(t *testing.T) {
			problems, err := rule(fsys, tracked)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Error(p)
			}
		})
	}
}

// moduleRoot is the folder above this package that holds go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

// trackedFiles lists what git tracks or, in a copy without git, every file that it would.
func trackedFiles(t *testing.T, root string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	cmd.Dir = root
	var files []string
	if list, err := cmd.Output(); err == nil {
		for name := range bytes.SplitSeq(list, []byte{0}) {
			if len(name) > 0 {
				files = append(files, string(name))
			}
		}
		return files
	}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case ".git", ".tools", ".spillway", "node_modules", "cdk.out", "bin", "out", "dist":
				return fs.SkipDir
			}
			return nil
		}
		files = append(files, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
