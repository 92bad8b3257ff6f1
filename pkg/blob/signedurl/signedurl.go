// Package signedurl makes and serves presigned URLs for stores that have none of their own: the
// local server's way of letting a client without credentials write or read one object.
//
// Vocabulary: the terms of a URL are what it is bound to: method, key, expiry, and for a put the
// size and the checksum, if one was announced; the signature is an HMAC-SHA256 of the terms.
//
// Invariants:
//   - A request that differs from the terms in anything is refused with 403 before a byte of it is
//     read or stored: tampered, expired, another method, another length, parameters twice or more
//     of them.
//   - A set of terms has exactly one URL; nothing in it can be written in two ways.
//   - Answers never run in a browser: they are octet-stream, nosniff.
//
// Non-goals: credentials of the API itself, rotation of keys (a new key voids the URLs made before,
// which live for minutes), browser uploads by form.
package signedurl

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/pkg/blob"
	"github.com/spillway-mq/spillway/pkg/queue"
)

const (
	// BasePath is the path below which objects are served; a key follows it.
	BasePath = "/v1/objects/"
	// KeyBytes is the length of a Signer's key.
	KeyBytes = 32

	// version begins what is signed, so that another form can be told apart later.
	version = "spillway-url-1"

	paramExpires = "expires"
	paramSize    = "size"
	// paramChecksum holds the 8 digits only: a ":" is escaped by some clients and not by others.
	paramChecksum  = "crc32c"
	paramSignature = "signature"
)

// Terms are what a URL is bound to.
type Terms struct {
	// Method is PUT, or GET, which also allows HEAD.
	Method  string
	Key     string
	Expires time.Time // rounded down to seconds
	// Put holds size and checksum of a PUT.
	Put blob.Terms
}

// Signer makes and verifies URLs; it implements blob.Presigner. Safe for concurrent use.
type Signer struct{ key [KeyBytes]byte }

var _ blob.Presigner = (*Signer)(nil)

// NewSigner signs with key, which must stay secret.
func NewSigner(key [KeyBytes]byte) *Signer { return &Signer{key} }

// PresignPut implements blob.Presigner. The request's URL is a path with query; its headers carry
// the checksum, if terms have one. The body's length must be sent as Content-Length.
func (s *Signer) PresignPut(ctx context.Context, key string, terms blob.Terms, expires time.Time) (blob.Request, error) {
	if err := terms.Validate(); err != nil {
		return blob.Request{}, err
	}
	req, err := s.presign(ctx, Terms{Method: http.MethodPut, Key: key, Expires: expires, Put: terms})
	if err == nil && terms.HasCRC32C {
		req.Headers = map[string]string{blob.ChecksumHeader: blob.FormatChecksum(terms.CRC32C)}
	}
	return req, err
}

// PresignGet implements blob.Presigner.
func (s *Signer) PresignGet(ctx context.Context, key string, expires time.Time) (blob.Request, error) {
	return s.presign(ctx, Terms{Method: http.MethodGet, Key: key, Expires: expires})
}

func (s *Signer) presign(ctx context.Context, t Terms) (blob.Request, error) {
	if err := blob.ValidateKey("key", t.Key); err != nil {
		return blob.Request{}, err
	}
	if t.Expires.Unix() <= 0 {
		return blob.Request{}, queue.Invalid("expires", nil, "must be a time after 1970")
	}
	if err := blob.Canceled(ctx, "presign", t.Key); err != nil {
		return blob.Request{}, err
	}
	// No character of keys, numbers, digits and signatures is ever escaped in a URL.
	return blob.Request{Method: t.Method, URL: BasePath + t.Key + "?" + query(t, s.sign(t))}, nil
}

// query renders terms and signature, in the one order and form that Verify takes.
func query(t Terms, signature string) string {
	var b strings.Builder
	b.WriteString(paramExpires + "=" + strconv.FormatInt(t.Expires.Unix(), 10))
	if t.Method == http.MethodPut {
		b.WriteString("&" + paramSize + "=" + strconv.FormatInt(t.Put.Size, 10))
		if t.Put.HasCRC32C {
			b.WriteString("&" + paramChecksum + "=" + digits(t.Put.CRC32C))
		}
	}
	b.WriteString("&" + paramSignature + "=" + signature)
	return b.String()
}

func digits(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// sign computes the signature of t. No field can hold a newline, so the fields cannot run into one
// another.
func (s *Signer) sign(t Terms) string {
	fields := []string{version, t.Method, t.Key, strconv.FormatInt(t.Expires.Unix(), 10), "", ""}
	if t.Method == http.MethodPut {
		fields[4] = strconv.FormatInt(t.Put.Size, 10)
		if t.Put.HasCRC32C {
			fields[5] = digits(t.Put.CRC32C)
		}
	}
	mac := hmac.New(sha256.New, s.key[:])
	_, _ = mac.Write([]byte(strings.Join(fields, "\n"))) // a hash never fails
	return hex.EncodeToString(mac.Sum(nil))
}

// Attempt is a request that claims to be presigned, as net/http gives it.
type Attempt struct {
	Method string
	// EscapedPath is the path as it was sent: url.URL.EscapedPath.
	EscapedPath string
	// RawQuery is the query as it was sent.
	RawQuery string
	// ContentLength is -1 if it is not known.
	ContentLength int64
	Header        http.Header
}

// AttemptOf takes an Attempt out of r.
func AttemptOf(r *http.Request) Attempt {
	return Attempt{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.ContentLength, r.Header}
}

// Verify gives the terms that a request was signed with. Everything that does not fit, in form, in
// content or in time, is a KindDenied error with CodeForbidden; it does not say which, but for
// expiry and length, which honest clients run into.
func (s *Signer) Verify(a Attempt, now time.Time) (Terms, error) {
	t, signature, ok := parse(a)
	// The signature is compared first, so that nothing is told to those who have none.
	if !ok || !hmac.Equal([]byte(signature), []byte(s.sign(t))) {
		return Terms{}, denied("the signature does not fit this request")
	}
	if !now.Before(t.Expires) {
		return Terms{}, denied("the URL has expired; ask for a new one")
	}
	if t.Method != http.MethodPut {
		return t, nil
	}
	if a.ContentLength != t.Put.Size {
		return Terms{}, deniedFor("Content-Length", "differs from the size that was announced")
	}
	if sent := a.Header.Values(blob.ChecksumHeader); t.Put.HasCRC32C &&
		(len(sent) != 1 || sent[0] != blob.FormatChecksum(t.Put.CRC32C)) {
		return Terms{}, deniedFor(blob.ChecksumHeader, "differs from the checksum that was announced")
	}
	return t, nil
}

func denied(message string) error {
	return &queue.Error{Op: "verify presigned URL", Kind: queue.KindDenied, Code: queue.CodeForbidden, Message: message}
}

func deniedFor(field, what string) error {
	return &queue.Error{
		Op: "verify presigned URL", Kind: queue.KindDenied, Code: queue.CodeForbidden, Field: field,
		Message: field + ": " + what,
	}
}

// parse reads the terms out of a request; ok is false unless it is written exactly as presign does.
func parse(a Attempt) (t Terms, signature string, ok bool) {
	t.Method = a.Method
	if a.Method == http.MethodHead {
		t.Method = http.MethodGet
	}
	if t.Method != http.MethodGet && t.Method != http.MethodPut {
		return t, "", false
	}
	// A valid key has no character that is ever escaped, so an escaped path cannot hold one.
	t.Key, ok = strings.CutPrefix(a.EscapedPath, BasePath)
	if !ok || blob.ValidateKey("key", t.Key) != nil {
		return t, "", false
	}
	for pair := range strings.SplitSeq(a.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if !t.setParam(name, value, &signature) {
			return t, "", false
		}
	}
	// Rebuilding the query is what refuses parameters that are missing, repeated or out of order.
	return t, signature, t.Put.Validate() == nil && a.RawQuery == query(t, signature)
}

func (t *Terms) setParam(name, value string, signature *string) bool {
	switch name {
	case paramExpires:
		sec, err := strconv.ParseInt(value, 10, 64)
		t.Expires = time.Unix(sec, 0)
		return err == nil && sec > 0
	case paramSize:
		size, err := strconv.ParseInt(value, 10, 64)
		t.Put.Size = size
		return err == nil
	case paramChecksum:
		sum, err := strconv.ParseUint(value, 16, 32)
		t.Put.CRC32C, t.Put.HasCRC32C = uint32(sum), true
		return err == nil
	case paramSignature:
		*signature = value
		return true
	}
	return false
}
