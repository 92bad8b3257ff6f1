package boltmeta

import (
	"github.com/spillway-mq/spillway/pkg/meta"
)

// overlay is what a batch has changed so far.
type overlay struct {
	slots map[meta.Key]*slot
}

// slot is a record that a batch changes.
type slot struct {
	item  *meta.Item // nil: removed
	frame []byte     // item in stored form; lives in the batch's arena
	// base is when the record that the file holds expires; its entry in the expiry index goes
	// when the slot is written.
	base *meta.Item
}

// staged is one change of a request that is not judged to its end.
type staged struct {
	key meta.Key
	slot
}

func (o *overlay) reset() { clear(o.slots) }

// add takes over the changes of a request that has been judged.
func (o *overlay) add(changes []staged) {
	for i := range changes {
		c := &changes[i]
		if have := o.slots[c.key]; have != nil {
			c.base = have.base
		}
		o.slots[c.key] = &c.slot
	}
}

const (
	chunkBytes = 1 << 20
	// keepChunks is how many chunks the arena holds on to between batches.
	keepChunks = 4
)

// arena holds the frames of one batch: bolt refers to a value until its transaction ends, so frames
// need to live as long, and no longer.
type arena struct {
	chunks [][]byte // each of length 0 or in use
	at     int      // the chunk in use
}

// tail is where the next frame is appended; it has room for one of the greatest size.
func (a *arena) tail() []byte {
	for ; a.at < len(a.chunks); a.at++ {
		if c := a.chunks[a.at]; cap(c)-len(c) >= meta.MaxRecordBytes {
			return c
		}
	}
	a.chunks = append(a.chunks, make([]byte, 0, chunkBytes))
	return a.chunks[a.at]
}

// keep makes n bytes appended to tail part of the arena.
func (a *arena) keep(n int) {
	c := a.chunks[a.at]
	if len(c)+n <= cap(c) {
		a.chunks[a.at] = c[:len(c)+n]
	}
}

// reset gives all room back; frames handed out are void.
func (a *arena) reset() {
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
	if len(a.chunks) > keepChunks {
		clear(a.chunks[keepChunks:])
		a.chunks = a.chunks[:keepChunks]
	}
	a.at = 0
}

// size is the number of bytes in use.
func (a *arena) size() int {
	n := 0
	for _, c := range a.chunks {
		n += len(c)
	}
	return n
}
