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
	// MaxOffset bounds offsets so that arithmetic on them cannot overflow.
	MaxOffset Offset = 1<<53 - 1
)

// idEncoding is Crockford's base 32 in lower case: no letters that read as digits.
var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// IDs makes new random ids from a source of randomness. Safe for concurrent use if the source is.
type IDs struct{ source io.Reader }

// NewIDs reads randomness from source; nil means crypto/rand.
func NewIDs(source io.Reader) *IDs {
	if source == nil {
		source = rand.Reader
	}
	return &IDs{source: source}
}

func (g *IDs) fill(b []byte) {
	if _, err := io.ReadFull(g.source, b); err != nil {
		// crypto/rand never fails (it ends the program itself); a test's source that runs dry
		// must not hand out equal ids.
		panic("queue: source of randomness ran dry: " + err.Error())
	}
}

// ID is 16 characters of 80 random bits.
func (g *IDs) ID() string {
	var b [idBytes]byte
	g.fill(b[:])
	return idEncoding.EncodeToString(b[:])
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
	_, err := idEncoding.DecodeString(s)
	return err == nil
}

// MessageID is "<segment id>-<offset>", stable for the message's life.
type MessageID struct {
	Segment SegmentID
	Offset  Offset
}

// String renders the id as the API gives it.
func (m MessageID) String() string {
	return string(m.Segment) + "-" + strconv.FormatUint(uint64(m.Offset), 10)
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
	n, err := strconv.ParseUint(s, 10, 64)
	if err == nil && strconv.FormatUint(n, 10) != s {
		return 0, strconv.ErrSyntax
	}
	return n, err
}

// Receipt proves a claim on the messages [Lo, Hi) of a segment; the usual receipt covers one. To a
// caller it is opaque. The server checks it against the claim itself, so it needs no signature: the
// claim id cannot be guessed.
type Receipt struct {
	Segment SegmentID
	Claim   ClaimID
	Lo, Hi  Offset
}

const receiptVersion = 1

// String renders the receipt in URL-safe base 64.
func (r Receipt) String() string {
	b := make([]byte, 0, 1+idBytes+len(r.Claim)+2*binary.MaxVarintLen64)
	b = append(b, receiptVersion)
	seg, _ := idEncoding.DecodeString(string(r.Segment))
	b = append(b, seg...)
	b = append(b, r.Claim[:]...)
	b = binary.AppendUvarint(b, uint64(r.Lo))
	b = binary.AppendUvarint(b, uint64(r.Hi-r.Lo))
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseReceipt reads what String renders; anything else is a KindInvalid error on field "receipts".
func ParseReceipt(s string) (Receipt, error) {
	bad := Invalid("receipts", nil, "not a receipt")
	const fixed = 1 + idBytes + len(ClaimID{})
	if len(s) > 2*(fixed+2*binary.MaxVarintLen64) {
		return Receipt{}, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) < fixed+2 || b[0] != receiptVersion {
		return Receipt{}, bad
	}
	r := Receipt{Segment: SegmentID(idEncoding.EncodeToString(b[1 : 1+idBytes]))}
	copy(r.Claim[:], b[1+idBytes:fixed])
	lo, n1 := binary.Uvarint(b[fixed:])
	if n1 <= 0 {
		return Receipt{}, bad
	}
	count, n2 := binary.Uvarint(b[fixed+n1:])
	if n2 <= 0 || fixed+n1+n2 != len(b) || lo > uint64(MaxOffset) || count == 0 || count > MaxClaimMessages {
		return Receipt{}, bad
	}
	r.Lo, r.Hi = Offset(lo), Offset(lo+count)
	return r, nil
}

// EntryIDOf derives an EntryID from 16 bytes: the same bytes give the same id.
func EntryIDOf(b [16]byte) EntryID {
	return EntryID(idEncoding.EncodeToString(b[len(b)-idBytes:]))
}
