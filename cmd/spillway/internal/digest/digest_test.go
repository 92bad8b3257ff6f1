package digest_test

import (
	"crypto/sha256"
	"fmt"
	"math/big"
	"testing"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/digest"
	"pgregory.net/rapid"
)

// TestAgainstBigInt holds the sum to a plain model.
func TestAgainstBigInt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bodies := rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "bodies")
		cut := rapid.IntRange(0, len(bodies)).Draw(t, "cut")
		want := new(big.Int)
		var a, b digest.Sum
		for i, body := range bodies {
			h := sha256.Sum256(body)
			want.Add(want, new(big.Int).SetBytes(h[:]))
			if i < cut {
				a.Add(body)
			} else {
				b.Add(body)
			}
		}
		want.Mod(want, new(big.Int).Lsh(big.NewInt(1), 256))
		b.Merge(a)
		if got := b.String(); got != fmt.Sprintf("%064x", want) || b.Count != uint64(len(bodies)) {
			t.Fatalf("got %s of %d, want %064x of %d", got, b.Count, want, len(bodies))
		}
	})
}

func TestADoubledBodyShows(t *testing.T) {
	var once, thrice digest.Shared
	once.Add([]byte("a"))
	for range 3 {
		thrice.Add([]byte("a"))
	}
	a, b := once.Sum(), thrice.Sum()
	if a.String() == b.String() {
		t.Error("a body counted three times has the checksum of one")
	}
}

func TestABodyInPieces(t *testing.T) {
	var whole digest.Sum
	whole.Add([]byte("abc"))
	b := digest.NewBody()
	for _, piece := range []string{"a", "", "bc"} {
		if _, err := b.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if b.Sum() != whole {
		t.Errorf("%v, want %v", b.Sum(), whole)
	}
}
