package survey_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/survey"
	"github.com/spillway-mq/spillway/pkg/client"
)

const identity = `<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>` +
	`<Arn>arn:aws:sts::123456789012:assumed-role/ops/me</Arn><UserId>A:me</UserId><Account>123456789012</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`

// refusing answers every call but the one for who calls with a status and, in each protocol's way, a code.
func refusing(t *testing.T, status int, code string, skew time.Duration) aws.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Date", time.Now().Add(skew).UTC().Format(http.TimeFormat))
		if strings.Contains(string(body), "GetCallerIdentity") {
			w.Header().Set("Content-Type", "text/xml")
			_, _ = io.WriteString(w, identity)
			return
		}
		w.Header().Set("X-Amzn-Errortype", code)
		w.WriteHeader(status)
		switch {
		case r.Method == http.MethodHead:
		case r.Header.Get("X-Amz-Target") != "" || strings.HasPrefix(r.URL.Path, "/schedules") || strings.HasPrefix(r.URL.Path, "/2015-03-31"):
			_, _ = io.WriteString(w, `{"__type":"`+code+`","message":"no"}`)
		case strings.Contains(string(body), "Action="):
			_, _ = io.WriteString(w, `<ErrorResponse><Error><Code>`+code+`</Code><Message>no</Message></Error></ErrorResponse>`)
		default:
			_, _ = io.WriteString(w, `<Error><Code>`+code+`</Code><Message>no</Message></Error>`)
		}
	}))
	t.Cleanup(server.Close)
	return aws.Config{
		Region: "eu-west-1", BaseEndpoint: &server.URL, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("A", "s", ""),
	}
}

func options() survey.Options {
	return survey.Options{
		Program: "v1", Clock: time.Now, Document: []byte("openapi"),
		Dial: func(context.Context, string) (*client.Client, error) { return nil, errors.New("unplugged") },
	}
}

func statuses(f *doctor.Facts) map[string]doctor.Status {
	out := map[string]doctor.Status{}
	for _, found := range doctor.Examine(f) {
		out[found.Check] = found.Status
	}
	return out
}

var place = survey.Place{Stack: "Spillway", Table: "t", Bucket: "b", URL: "https://api.example", PathStyle: true}

// TestMayNotLook: what the caller may not ask is unknown, and says which right is missing.
func TestMayNotLook(t *testing.T) {
	t.Parallel()
	f := survey.Survey(t.Context(), refusing(t, http.StatusForbidden, "AccessDeniedException", 0), place, options())
	got := statuses(f)
	for _, check := range []string{"stack", "version", "table", "bucket", "function.leader", "schedule.leader", "alarms", "rights.produce", "rights.caller", "leader.ran"} {
		if got[check] != doctor.Unknown {
			t.Errorf("%s is %q", check, got[check])
		}
	}
	if got["caller"] != doctor.OK || got["clock"] != doctor.OK || got["api.leader"] != doctor.Fail {
		t.Errorf("%v", got)
	}
	for _, tr := range []*doctor.Trouble{f.Stack.Trouble, f.Table.Trouble, f.TTL.Trouble, f.Bucket.Trouble, f.Blocked.Trouble, f.Policy.Trouble} {
		if tr == nil || tr.Kind != doctor.Denied {
			t.Errorf("%+v is not a refusal", tr)
		}
	}
}

// TestNothingThere: what does not exist fails.
func TestNothingThere(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"ResourceNotFoundException", "NoSuchBucket", "ValidationError"} {
		got := statuses(survey.Survey(t.Context(), refusing(t, http.StatusNotFound, code, 0), place, options()))
		for _, check := range []string{"stack", "table", "bucket"} {
			if got[check] != doctor.Fail {
				t.Errorf("%s: %s is %q", code, check, got[check])
			}
		}
	}
}

// TestOutage: what fails is unknown.
func TestOutage(t *testing.T) {
	t.Parallel()
	got := statuses(survey.Survey(t.Context(), refusing(t, http.StatusInternalServerError, "InternalError", 0), place, options()))
	for _, check := range []string{"stack", "table", "bucket", "alarms"} {
		if got[check] != doctor.Unknown {
			t.Errorf("%s is %q", check, got[check])
		}
	}
}

func TestClockOfAWS(t *testing.T) {
	t.Parallel()
	f := survey.Survey(t.Context(), refusing(t, http.StatusForbidden, "AccessDenied", 3*time.Hour), place, options())
	if off := (f.Skew.Value - 3*time.Hour).Abs(); f.Skew.Trouble != nil || off > time.Minute {
		t.Errorf("%+v", f.Skew)
	}
}

// TestNobody: without credentials nothing else is asked, and nothing is ok.
func TestNobody(t *testing.T) {
	t.Parallel()
	cfg := refusing(t, http.StatusForbidden, "AccessDenied", 0)
	cfg.Credentials = aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no EC2 IMDS role found")
	}))
	list := doctor.Examine(survey.Survey(t.Context(), cfg, place, options()))
	if list[0].Check != "caller" || list[0].Status != doctor.Fail || !strings.Contains(list[0].Fix, "AWS_PROFILE") {
		t.Errorf("%+v", list[0])
	}
	if slices.ContainsFunc(list, func(f doctor.Finding) bool { return f.Status == doctor.OK }) {
		t.Errorf("%+v", list)
	}
}

// TestEmulator: the stack's URL leads to AWS itself, so it is not called.
func TestEmulator(t *testing.T) {
	t.Parallel()
	o := options()
	o.Dial = func(context.Context, string) (*client.Client, error) {
		t.Error("it was called")
		return nil, errors.New("unplugged")
	}
	p := place
	p.URL, p.Emulated = "", true
	f := survey.Survey(t.Context(), refusing(t, http.StatusForbidden, "AccessDenied", 0), p, o)
	if tr := f.API.Answers[doctor.Leader].Trouble; tr == nil || tr.Kind != doctor.Unasked || !strings.Contains(tr.Text, "--endpoint") {
		t.Errorf("%+v", tr)
	}
}
