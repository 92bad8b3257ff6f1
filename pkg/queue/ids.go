package queue

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"io"
	"strconv"
	"strings"
	"time"
)

// TopicID is the immutable identity of a topic: 16 characters. Names point to it.
type TopicID string

// SegmentID is the identity of a segment: 16 characters, never reused.
type SegmentID string

// SubscriptionID is the identity of a subscription, so that one made anew under an old name starts
// afresh.
type SubscriptionID string

// EntryID is the identity of an entry of the delayed index.
type EntryID string

// Offset is the position of a message in its segment: 0, 1, 2, … without gaps.
type Offset uint64

// Epoch is a fencing number: it only grows and is never reused.
type Epoch uint64

// ClaimID names one claim. It is 96 random bits, which is what makes a receipt unforgeable.
type ClaimID [12]byte

// String is the id in hexadecimal.
func (c ClaimID) String() string { return hex.EncodeToString(c[:]) }

const (
	idBytes = 10
	idChars = 16
	// idAlphabet is Crockford's base 32 in lower case: no letters that read as digits.
	idAlphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	// maxDigits is the length of the largest number of 64 bits.
	maxDigits = 20
	// MaxOffset bounds offsets so that arithmetic on them cannot overflow.
	MaxOffset Offset = 1<<53 - 1
)

var idEncoding = base32.NewEncoding(idAlphabet).WithPadding(base32.NoPadding)

var receiptEncoding = base64.RawURLEncoding.Strict()

// IDs makes new random ids from a source of randomness. Safe for concurrent use if the source is.
type IDs struct{ source io.Reader }

// NewIDs reads randomness from source; nil means crypto/rand.
func NewIDs(source io.Reader) *IDs { return &IDs{source: source} }

func (g *IDs) fill(b []byte) {
	if g.source == nil {
		_, _ = rand.Read(b) // it never fails: it ends the program itself
		return
	}
	// What goes through an interface goes to the heap, and ids are made on every call: only a test's
	// source has to pay for that.
	drawn := make([]byte, len(b))
	if _, err := io.ReadFull(g.source, drawn); err != nil {
		// A source that runs dry must not hand out equal ids.
		panic("queue: source of randomness ran dry: " + err.Error())
	}
	copy(b, drawn)
}

// ID is 16 characters of 80 random bits.
func (g *IDs) ID() string {
	var b [idBytes]byte
	g.fill(b[:])
	return idOf(b[:])
}

// idOf is the text of an id's bytes.
func idOf(b []byte) string {
	var text [idChars]byte
	idEncoding.Encode(text[:], b[:idBytes])
	return string(text[:])
}

// Topic makes a TopicID.
func (g *IDs) Topic() TopicID { return TopicID(g.ID()) }

// Segment makes a SegmentID.
func (g *IDs) Segment() SegmentID { return SegmentID(g.ID()) }

// Subscription makes a SubscriptionID.
func (g *IDs) Subscription() SubscriptionID { return SubscriptionID(g.ID()) }

// Entry makes an EntryID.
func (g *IDs) Entry() EntryID { return EntryID(g.ID()) }

// Claim makes a ClaimID.
func (g *IDs) Claim() ClaimID {
	var c ClaimID
	g.fill(c[:])
	return c
}

// Nonce makes 16 random bytes: what makes two batches of equal content different objects.
func (g *IDs) Nonce() (n [16]byte) {
	g.fill(n[:])
	return n
}

// Jitter is a random duration from d/2 to d (not negative), for waits that must not end together.
func (g *IDs) Jitter(d time.Duration) time.Duration {
	n := g.Nonce()
	return d/2 + time.Duration(binary.BigEndian.Uint64(n[:8])%uint64(d-d/2+1)) // #nosec G115 -- d is not negative, the rest below it
}

// ValidID reports whether s has the form of an id made here.
func ValidID(s string) bool {
	if len(s) != idChars {
		return false
	}
	for i := range len(s) {
		if strings.IndexByte(idAlphabet, s[i]) < 0 {
			return false
		}
	}
	return true
}

// MessageID is "<segment id>-<offset>", stable for the message's life.
type MessageID struct {
	Segment SegmentID
	Offset  Offset
}

// String renders the id as the API gives it.
func (m MessageID) String() string {
	return string(m.AppendTo(make([]byte, 0, idChars+1+maxDigits)))
}

// AppendTo appends what String renders.
func (m MessageID) AppendTo(dst []byte) []byte {
	dst = append(append(dst, m.Segment...), '-')
	return strconv.AppendUint(dst, uint64(m.Offset), 10)
}

// ParseMessageID reads what String renders; anything else is a KindInvalid error on field "id".
func ParseMessageID(s string) (MessageID, error) {
	seg, off, ok := strings.Cut(s, "-")
	n, err := parseCanonical(off)
	if !ok || err != nil || !ValidID(seg) || Offset(n) > MaxOffset {
		return MessageID{}, Invalid("id", nil, "not a message id: want <segment id>-<offset>")
	}
	return MessageID{SegmentID(seg), Offset(n)}, nil
}

// DelayedID names one message of the delayed index. It carries the visible time at which the
// message entered the index, which is its place there unless its delay was edited.
type DelayedID struct {
	Visible Millis
	Entry   EntryID
	Index   uint32
}

// String renders "<visible ms>-<entry id>-<index>".
func (d DelayedID) String() string {
	return strconv.FormatInt(int64(d.Visible), 10) + "-" + string(d.Entry) + "-" + strconv.FormatUint(uint64(d.Index), 10)
}

// ParseDelayedID reads what String renders; anything else is a KindInvalid error on field "id".
func ParseDelayedID(s string) (DelayedID, error) {
	parts := strings.Split(s, "-")
	bad := Invalid("id", nil, "not a delayed message id")
	if len(parts) != 3 || !ValidID(parts[1]) {
		return DelayedID{}, bad
	}
	ms, err1 := parseCanonical(parts[0])
	idx, err2 := parseCanonical(parts[2])
	if err1 != nil || err2 != nil || ms == 0 || ms > uint64(MaxOffset) || idx >= MaxBatchRecords {
		return DelayedID{}, bad
	}
	return DelayedID{Millis(ms), EntryID(parts[1]), uint32(idx)}, nil // #nosec G115 -- bounded above
}

// parseCanonical reads a decimal without sign, leading zeros or spaces.
func parseCanonical(s string) (uint64, error) {
	if len(s) > 1 && s[0] == '0' {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(s, 10, 64)
}

// Receipt proves a claim on the messages [Lo, Hi) of a segment; the usual receipt covers one. To a
// caller it is opaque. The server checks it against the claim itself, so it needs no signature: the
// claim id cannot be guessed.
type Receipt struct {
	Segment SegmentID
	Claim   ClaimID
	Lo, Hi  Offset
}

const (
	receiptVersion = 1
	// receiptFixed is the length of what comes before the offsets, maxReceipt that of the longest.
	receiptFixed = 1 + idBytes + len(ClaimID{})
	maxReceipt   = receiptFixed + 2*binary.MaxVarintLen64
)

// String renders the receipt in URL-safe base 64.
func (r Receipt) String() string { return string(r.AppendTo(make([]byte, 0, 2*maxReceipt))) }

// AppendTo appends what String renders.
func (r Receipt) AppendTo(dst []byte) []byte {
	b := make([]byte, 1+idBytes, maxReceipt)
	b[0] = receiptVersion
	var segment [idChars]byte
	copy(segment[:], r.Segment)
	n, _ := idEncoding.Decode(b[1:], segment[:]) // of what is no id less comes out, which nobody takes for a receipt
	b = append(b[:1+n], r.Claim[:]...)
	b = binary.AppendUvarint(b, uint64(r.Lo))
	b = binary.AppendUvarint(b, uint64(r.Hi-r.Lo))
	return receiptEncoding.AppendEncode(dst, b)
}

// ParseReceipt reads what String renders; anything else is a KindInvalid error on field "receipts".
func ParseReceipt(s string) (Receipt, error) {
	r, ok := parseReceipt(s)
	if !ok {
		return Receipt{}, Invalid("receipts", nil, "not a receipt")
	}
	return r, nil
}

func parseReceipt(s string) (r Receipt, ok bool) {
	var text [2 * maxReceipt]byte
	if len(s) > len(text) {
		return Receipt{}, false
	}
	var buf [2 * maxReceipt]byte
	n, err := receiptEncoding.Decode(buf[:], text[:copy(text[:], s)])
	b := buf[:n]
	if err != nil || len(b) < receiptFixed+2 || b[0] != receiptVersion {
		return Receipt{}, false
	}
	r.Segment = SegmentID(idOf(b[1 : 1+idBytes]))
	copy(r.Claim[:], b[1+idBytes:receiptFixed])
	lo, n1 := binary.Uvarint(b[receiptFixed:])
	if n1 <= 0 {
		return Receipt{}, false
	}
	count, n2 := binary.Uvarint(b[receiptFixed+n1:])
	if n2 <= 0 || receiptFixed+n1+n2 != len(b) || lo > uint64(MaxOffset) || count == 0 || count > MaxClaimMessages {
		return Receipt{}, false
	}
	r.Lo, r.Hi = Offset(lo), Offset(lo+count)
	return r, true
}

// EntryIDOf derives an EntryID from 16 bytes: the same bytes give the same id.
func EntryIDOf(b [16]byte) EntryID {
	return EntryID(idOf(b[len(b)-idBytes:]))
}
