// Package sigv4 signs the calls of a client.Client by AWS Signature Version 4, as an API Gateway with IAM
// authorization asks for.
//
//	cfg, err := config.LoadDefaultConfig(ctx) // of aws-sdk-go-v2: environment, profile, SSO, container, instance
//	signer, err := sigv4.New(cfg.Credentials, sigv4.Options{Region: cfg.Region})
//	c, err := client.New(url, client.Options{Signer: signer, MaxRequestBytes: sigv4.MaxRequestBytes})
//
// Vocabulary: the offset is what the clock of AWS is ahead of ours.
//
// Invariants: each try is signed anew, with the credentials of that moment and the body's own hash; there
// are no unsigned payloads. A clock that is off is corrected by the Date of the answer that refuses a call,
// and that call is made once more. Neither secret nor session token gets into an error.
//
// It is a package of its own so that programs which link pkg/client do not link the SDK of AWS.
//
// Non-goals: finding credentials, which the SDK's config package does; presigning, which the server does.
package sigv4

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// MaxRequestBytes is what a call's body may have on its way through API Gateway to Lambda, whose events hold
// 6 MiB, the body in base 64. 48 KiB of that are kept for headers and context, which API Gateway bounds at
// 10 KB and repeats in part.
const MaxRequestBytes = 6<<20/4*3 - 48<<10

const (
	// tolerated is the offset up to which a refusal is not put down to the clock. AWS takes signatures
	// of 5 minutes ago; a Date is in seconds and was on its way for a while.
	tolerated = 2 * time.Minute
	// service is API Gateway's name in signatures.
	service = "execute-api"
)

// Options are the optional arguments of New.
type Options struct {
	// Region is the API's. It is required.
	Region string
	// Clock tells the time; time.Now unless set.
	Clock queue.Clock
}

// Signer is a client.Signer. Safe for concurrent use.
type Signer struct {
	credentials *aws.CredentialsCache
	region      string
	clock       queue.Clock
	v4          *v4.Signer

	mu     sync.Mutex // guards offset
	offset time.Duration
}

// New makes a signer. Credentials are fetched when they are needed and again before they expire; no
// call is made here. The error is of KindInvalid, with Field "credentials" or "region".
func New(credentials aws.CredentialsProvider, o Options) (*Signer, error) {
	switch {
	case credentials == nil:
		return nil, queue.Invalid("credentials", nil, "are missing")
	case o.Region == "":
		return nil, queue.Invalid("region", nil, "is empty: set AWS_REGION, or a region in the profile")
	}
	cache, ok := credentials.(*aws.CredentialsCache)
	if !ok {
		cache = aws.NewCredentialsCache(credentials)
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Signer{credentials: cache, region: o.Region, clock: o.Clock, v4: v4.NewSigner()}, nil
}

// CredentialsError says that there are no credentials to sign with. errors.As finds it in what a call of
// a client.Client fails with.
type CredentialsError struct {
	// Err is what the provider said.
	Err error
}

// Error is the provider's text.
func (e *CredentialsError) Error() string { return "no AWS credentials: " + e.Err.Error() }

// Unwrap gives the provider's error.
func (e *CredentialsError) Unwrap() error { return e.Err }

// Sign signs req and its body.
func (s *Signer) Sign(req *http.Request, body []byte) error {
	ctx := req.Context()
	credentials, err := s.retrieve(ctx)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	at := s.clock().Add(s.Offset())
	if err := s.v4.SignHTTP(ctx, credentials, req, hex.EncodeToString(sum[:]), service, s.region, at); err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return nil
}

func (s *Signer) retrieve(ctx context.Context) (aws.Credentials, error) {
	credentials, err := s.credentials.Retrieve(ctx)
	if err == nil && !credentials.HasKeys() {
		err = errors.New("the provider gives none")
	}
	if err != nil {
		return credentials, &CredentialsError{err}
	}
	return credentials, nil
}

// Offset is what the clock of AWS was found to be ahead of ours, 0 as long as that made no call fail.
func (s *Signer) Offset() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offset
}

// Refused corrects the clock if it may be the reason, and gives up credentials that have expired.
func (s *Signer) Refused(r client.Refusal) (again bool, advice string) {
	if s.correct(r.Header.Get("Date")) {
		return true, ""
	}
	if off := s.Offset(); off.Abs() > tolerated {
		return false, fmt.Sprintf("this machine's clock is %s: set it", Behind(off))
	}
	text := strings.ToLower(r.Message + " " + r.Header.Get("X-Amzn-Errortype"))
	switch {
	case strings.Contains(text, "signature expired") || strings.Contains(text, "signature not yet current"):
		return false, "the clocks of this machine and of AWS differ: set this machine's"
	case strings.Contains(text, "expired"):
		// Whether there are others shows when the call is signed anew.
		s.credentials.Invalidate()
		return true, "the AWS credentials have expired: get new ones, as with: aws sso login"
	case strings.Contains(text, "credential should be scoped"):
		return false, fmt.Sprintf("it was signed for the region %s: set AWS_REGION to the API's", s.region)
	case strings.Contains(text, "security token") || strings.Contains(text, "unrecognizedclient"):
		return false, "AWS does not know these credentials: see who you are with: aws sts get-caller-identity"
	}
	return false, fmt.Sprintf("the AWS credentials (%s, region %s) are not those of this API's account, or lack execute-api:Invoke on it: "+
		"see who you are with: aws sts get-caller-identity", s.source(), s.region)
}

// source says where the credentials come from, in the SDK's words: "EnvConfigCredentials".
func (s *Signer) source() string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	credentials, err := s.credentials.Retrieve(ctx)
	if err != nil || credentials.Source == "" {
		return "of an unknown source"
	}
	return "from " + credentials.Source
}

// correct takes over the time of an answer; false if the clock was right enough.
func (s *Signer) correct(date string) bool {
	theirs, err := http.ParseTime(date)
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := theirs.Sub(s.clock())
	if (found - s.offset).Abs() <= tolerated {
		return false
	}
	s.offset = found
	// Whether they have expired was judged by the wrong clock.
	s.credentials.Invalidate()
	return true
}

// Behind says what an offset is: "6m0s behind", "1h0m0s ahead".
func Behind(offset time.Duration) string {
	word := "behind"
	if offset < 0 {
		word = "ahead"
	}
	return offset.Abs().Round(time.Second).String() + " " + word
}
