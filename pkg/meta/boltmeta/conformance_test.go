package boltmeta_test

import (
	"path/filepath"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/boltmeta"
	"github.com/spillway-mq/spillway/pkg/meta/metatest"
)

func TestConformance(t *testing.T) {
	paths := make(map[meta.Store]string) // tests of the suite do not run in parallel
	open := func(t *testing.T, path string) meta.Store {
		s, err := boltmeta.Open(path, boltmeta.Options{})
		if err != nil {
			t.Fatal(err)
		}
		paths[s] = path
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	metatest.Run(t, metatest.Harness{
		New: func(t *testing.T) meta.Store { return open(t, filepath.Join(t.TempDir(), "meta.db")) },
		Reopen: func(t *testing.T, s meta.Store) meta.Store {
			if err := s.(*boltmeta.Store).Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, paths[s])
		},
	})
}
