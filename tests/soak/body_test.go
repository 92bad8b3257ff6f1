//go:build linux

package soak

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/pkg/client"
)

// name is a message's: its key, and its number among those of the key. Without a partition key the key begins with "-".
type name struct {
	key string
	n   int
}

func (n name) String() string { return n.key + "#" + strconv.Itoa(n.n) }

func parseName(s string) (name, error) {
	key, number, ok := strings.Cut(s, "#")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return name{}, fmt.Errorf("%q is no name", s)
	}
	return name{key, n}, nil
}

// bodyOf makes a body of about size bytes that tells its name and holds its own checksum.
func bodyOf(of name, size int, rng *rand.Rand) []byte {
	filler := make([]byte, size)
	for i := range filler {
		filler[i] = byte(rng.Uint32())
	}
	sum := crc32.ChecksumIEEE(append([]byte(of.String()), filler...))
	return append(fmt.Appendf(nil, "%s %08x\n", of, sum), filler...)
}

// parseBody gives the name of a whole body.
func parseBody(body []byte) (name, error) {
	head, filler, _ := bytes.Cut(body, []byte("\n"))
	text, sum, _ := strings.Cut(string(head), " ")
	if fmt.Sprintf("%08x", crc32.ChecksumIEEE(append([]byte(text), filler...))) != sum {
		return name{}, fmt.Errorf("a body of %d bytes with another checksum: %.80q", len(body), body)
	}
	return parseName(text)
}

// size draws the size of a body: most are small, few are larger than what fits a record of the metadata.
func size(rng *rand.Rand) int {
	switch dice := rng.IntN(100); {
	case dice < 90:
		return rng.IntN(200)
	case dice < 99:
		return rng.IntN(8 << 10)
	}
	return rng.IntN(150 << 10)
}

// delivered is a message with its name, or with what is wrong with it.
type delivered struct {
	*client.Received
	name  name
	wrong string
}

// open reads the names of messages. A body that cannot be fetched now leaves its message out.
func open(ctx context.Context, got []*client.Received) []delivered {
	out := make([]delivered, 0, len(got))
	for _, m := range got {
		d := delivered{Received: m}
		body := m.Body
		var err error
		if m.Err != nil {
			d.wrong = m.Err.Error()
			out = append(out, d)
			continue
		}
		if body == nil && m.ByReference() {
			if body, err = m.Bytes(ctx); err != nil {
				continue
			}
		}
		if d.name, err = parseBody(body); err != nil {
			d.wrong = err.Error()
		}
		out = append(out, d)
	}
	return out
}
