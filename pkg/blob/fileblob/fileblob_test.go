package fileblob

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/blob/blobtest"
)

func openStore(t testing.TB, dir string, opts Options) *Store {
	t.Helper()
	s, err := Open(dir, time.Now, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	sizes := map[string]Options{
		"default packs": {},
		// Packs that are full after a few objects, so that the suite crosses their ends.
		"tiny packs":  {PackBytes: minPackBytes},
		"large packs": {SmallBytes: 4 << 20},
	}
	for name, opts := range sizes {
		t.Run(name, func(t *testing.T) {
			blobtest.Run(t, blobtest.Harness{
				New: func(t testing.TB) blob.Store { return openStore(t, t.TempDir(), opts) },
				Reopen: func(t testing.TB, s blob.Store) blob.Store {
					old := s.(*Store)
					if err := old.Close(); err != nil {
						t.Fatal(err)
					}
					return openStore(t, old.dir, opts)
				},
			})
		})
	}
}
