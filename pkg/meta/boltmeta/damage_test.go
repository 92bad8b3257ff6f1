package boltmeta

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// sample makes a file of a few hundred records; closed says whether its list of free pages is in it.
func sample(t *testing.T, closed bool) []byte {
	t.Helper()
	s := openTest(t, Options{})
	for i := range 20 {
		var ops []meta.Op
		for j := range 20 {
			ops = append(ops, meta.Put{Record: &meta.Name{Name: fmt.Sprintf("n%d.%d", i, j), Link: "some.other.name"}, Version: 1})
		}
		ops = append(ops, meta.Put{Record: &meta.Payload{ID: fmt.Sprint(i), Data: make([]byte, 6000)}, Version: 1})
		if _, err := s.Transact(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
	}
	if closed {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDamage spoils files at random and uses them: errors are KindCorrupt and nothing panics, and what
// reads well reads as it was written.
func TestDamage(t *testing.T) {
	for _, closed := range []bool{true, false} {
		whole := sample(t, closed)
		for seed := range uint64(24) {
			rng := rand.New(rand.NewPCG(seed, 1))
			data := append([]byte(nil), whole...)
			switch seed % 4 {
			case 0:
				data = data[:rng.IntN(len(data))]
			case 1:
				data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			case 2: // the header or an element of some page
				at := rng.IntN(len(data)/4096)*4096 + rng.IntN(64)
				data[at] ^= byte(1 + rng.IntN(255))
			case 3:
				page := data[rng.IntN(len(data)/4096)*4096:][:4096]
				for i := range page {
					page[i] = byte(rng.Uint32())
				}
			}
			t.Run(fmt.Sprintf("closed %v/seed %d", closed, seed), func(t *testing.T) { useDamaged(t, data) })
		}
	}
}

func useDamaged(t *testing.T, data []byte) {
	path := filepath.Join(t.TempDir(), "meta.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	bad := func(err error) bool {
		if err != nil && !queue.Is(err, queue.KindCorrupt) && !queue.Is(err, queue.KindNotFound) {
			t.Errorf("ended with %v", err)
		}
		return err != nil
	}
	s, err := Open(path, Options{})
	if bad(err) {
		return
	}
	defer func() { _ = s.Close() }()
	for i := range 20 {
		item, err := s.Get(t.Context(), meta.NameKey(fmt.Sprintf("n%d.%d", i, i)))
		if !bad(err) && item.Record.(*meta.Name).Link != "some.other.name" {
			t.Errorf("reads %+v", item.Record)
		}
		_, err = s.Get(t.Context(), meta.PayloadKey(fmt.Sprint(i)))
		bad(err)
		if i%7 == 0 {
			_, err = s.Apply(t.Context(), meta.Put{Record: &meta.Payload{ID: fmt.Sprint(i), Data: make([]byte, 5000)}, Version: 2})
			bad(err)
		}
	}
	_, err = s.Query(t.Context(), meta.Range{PK: meta.NamespacePK, Limit: 1000})
	bad(err)
}

// TestVerifyAcceptsWhatBoltWrites holds the walk of verify.go against bbolt's own check.
func TestVerifyAcceptsWhatBoltWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	if err := os.WriteFile(path, sample(t, false), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := verifyFile(path, 0); err != nil {
		t.Error(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
