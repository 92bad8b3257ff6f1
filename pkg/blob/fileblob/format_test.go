package fileblob

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func newRand(seed int64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), 1)) // #nosec G115 -- any value does
}

func samplePack() (packInfo, entry) {
	p := packInfo{seq: 0x1a2b, prefix: "batches/", created: 1_800_000_000_000}
	for i := range p.salt {
		p.salt[i] = byte(i)
	}
	return p, entry{nonce: "0123456789abcdef", pos: 256, size: 300, sum: 0xdeadbeef, created: 1_800_000_000_123}
}

// TestFormatIsPinned holds the bytes that docs/FORMAT.md describes.
func TestFormatIsPinned(t *testing.T) {
	p, e := samplePack()
	b := make([]byte, entryHeader)
	e.encode(b, &p.salt)
	golden := map[string]string{
		hex.EncodeToString(p.encode()[:64]):           goldenPack,
		hex.EncodeToString(p.encode()[packHeader-4:]): goldenPackSum,
		hex.EncodeToString(b):                         goldenEntry,
		p.key(&e):                                     goldenKey,
		hex.EncodeToString(encodeFooter(blob.Info{Key: "uploads/a", Size: 5, CRC32C: 7, Modified: queue.Millis(1_800_000_000_000).Time()})): goldenFooter,
	}
	for got, want := range golden {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestObjectNames(t *testing.T) {
	long := strings.Repeat("K", blob.MaxKeyBytes)
	seen := map[string]string{}
	for _, key := range []string{"a", "A", "uploads/a.b-c_d", "uploads/AbC", "a/b", "con", long, long[1:], "uploads/" + strings.Repeat("x", 220)} {
		_, name := objectName(key)
		base := name[strings.LastIndexByte(name, '/')+1:]
		if len(base) > 255 || strings.ToLower(base) != base {
			t.Errorf("%s has the name %s", key, base)
		}
		if other, ok := seen[base]; ok {
			t.Errorf("%s and %s have one name", key, other)
		}
		seen[base] = key
		got, hashed := keyOfName(base)
		if hashed != (len(key) > 99) || (!hashed && got != key) {
			t.Errorf("name %s gives %q, %v", base, got, hashed)
		}
	}
	for _, stranger := range []string{"", ".obj", "k.obj", "x", "ka", ".DS_Store", "k..obj", "k+a.obj", "kA.obj", "k^.obj", "k^0.obj", "ka .obj", "k" + strings.Repeat("a", 250) + ".obj"} {
		if key, hashed := keyOfName(stranger); key != "" || hashed {
			t.Errorf("%q passes as %q", stranger, key)
		}
	}
}

// FuzzEntry: a header that decodes encodes to the same bytes, and no other salt accepts it.
func FuzzEntry(f *testing.F) {
	p, e := samplePack()
	b := make([]byte, entryHeader)
	e.encode(b, &p.salt)
	f.Add(b, int64(256))
	f.Add(make([]byte, entryHeader), int64(0))
	f.Add([]byte(entryMagic), int64(1))
	f.Fuzz(func(t *testing.T, b []byte, pos int64) {
		got, ok := decodeEntry(b, pos, &p.salt)
		if !ok {
			return
		}
		again := make([]byte, entryHeader)
		got.encode(again, &p.salt)
		if got.pos != pos || !bytes.Equal(again, b[:entryHeader]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, got, again)
		}
		if _, ok = decodeEntry(b, pos, &[saltBytes]byte{1}); ok {
			t.Fatal("another salt accepts it")
		}
	})
}

// FuzzLocation: a key that parses renders to itself.
func FuzzLocation(f *testing.F) {
	p, e := samplePack()
	f.Add(p.key(&e))
	f.Add("batches/p00000001")
	f.Add("p")
	f.Fuzz(func(t *testing.T, key string) {
		if loc, ok := parseLocation(key); ok && loc.String() != key {
			t.Fatalf("%q renders as %q", key, loc.String())
		}
	})
}

// FuzzPackHeader and FuzzFooter: no input panics, and what decodes encodes to the same bytes.
func FuzzPackHeader(f *testing.F) {
	p, _ := samplePack()
	f.Add(p.encode())
	f.Add(make([]byte, packHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := decodePack(b); ok && got.seq != p.seq {
			t.Logf("another header with a right checksum: %+v", got)
		}
	})
}

func FuzzFooter(f *testing.F) {
	footer := encodeFooter(blob.Info{Key: "uploads/a", Size: 5})
	f.Add(footer, int64(len(footer)+5))
	f.Add(footer[:20], int64(20))
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		info, ok := decodeFooter(tail, size)
		if ok && !bytes.HasSuffix(tail, encodeFooter(info)) {
			t.Fatalf("%x decodes to %+v", tail, info)
		}
	})
}

const (
	goldenPack    = "53504c5750434b312b1a00000800000000505c18a3010000000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f626174636865732f"
	goldenPackSum = "5324c1d9"
	goldenEntry   = "5350453101000000303132333435363738396162636465662c010000efbeadde00010000000000007b505c18a3010000000000000000000023cc6a89a50ae5c5"
	goldenKey     = "batches/p00001a2b-00000100-00012c-0123456789abcdefb8e3beea"
	goldenFooter  = "75706c6f6164732f6153504c574f424a310500000000000000070000000900000000505c18a301000000000000000000000000000040dc5d6e"
)
