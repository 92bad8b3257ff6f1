package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/functions/internal/cloudtest"
	"github.com/spillway-mq/spillway/functions/internal/host"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// The time that Lambda gives a call in these tests, by a simulated clock: the deployed functions' own.
const given = 29 * time.Second

// rig is a function over a cloud without a network, in a bubble of simulated time.
type rig struct {
	*host.API
	*cloudtest.Cloud
	t   *testing.T
	log *bytes.Buffer
}

// simulated runs a test in a bubble, on a topic "t" with a subscription "s".
func simulated(t *testing.T, test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{Cloud: cloudtest.New(t), t: t, log: new(bytes.Buffer)}
		r.API = r.another(cloudtest.Table, cloudtest.Bucket)
		for _, path := range []string{"/v1/topics/t", "/v1/topics/t/subscriptions/s"} {
			if a := r.call("PUT", path, `{}`); a.StatusCode != http.StatusCreated {
				t.Fatalf("%s: %d %s", path, a.StatusCode, a.Body)
			}
		}
		test(r)
		for _, word := range []string{"panic", "goroutine", secretBody[:20]} {
			if strings.Contains(r.log.String(), word) {
				t.Errorf("the log says %q:\n%.3000s", word, r.log)
			}
		}
	})
}

// another is a further process of the function.
func (r *rig) another(table, bucket string) *host.API {
	r.t.Helper()
	env := map[string]string{
		"SPILLWAY_TABLE": table, "SPILLWAY_BUCKET": bucket, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_ENDPOINT_URL_DYNAMODB": "http://dynamodb.test", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
	}
	c, err := host.FromEnvironment("test", func(k string) string { return env[k] })
	if err != nil {
		r.t.Fatal(err)
	}
	c.AWS.HTTPClient = &http.Client{Transport: r.Cloud}
	h, err := host.Open(c, r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	return h.API()
}

// call makes a call within Lambda's time, and makes sure that it kept to it and was answered in the API's form.
func (r *rig) call(method, path, body string, headers ...string) events.APIGatewayV2HTTPResponse {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), given)
	defer cancel()
	more := map[string]string{}
	for i := 0; i+1 < len(headers); i += 2 {
		more[headers[i]] = headers[i+1]
	}
	a, err := r.HTTP(ctx, event(method, path, body, more))
	if err != nil || ctx.Err() != nil {
		r.t.Fatalf("%s %s: %v; the time: %v", method, path, err, ctx.Err())
	}
	if a.StatusCode >= 400 && errorOf(a).Code == "" {
		r.t.Fatalf("%s %s: no error form: %d %s", method, path, a.StatusCode, a.Body)
	}
	return a
}

type apiError struct {
	Code      queue.Code
	Message   string
	Retryable bool
}

func errorOf(a events.APIGatewayV2HTTPResponse) apiError {
	var e struct{ Error apiError }
	_ = json.Unmarshal([]byte(a.Body), &e)
	return e.Error
}

// outcome is what became of the one message of a produce call: an error of the call or of the message, or none.
func outcome(a events.APIGatewayV2HTTPResponse) (id string, e apiError) {
	var out struct {
		Results []struct {
			ID    string
			Error apiError
		}
	}
	_ = json.Unmarshal([]byte(a.Body), &out)
	if a.StatusCode != http.StatusOK || len(out.Results) != 1 {
		return "", errorOf(a)
	}
	return out.Results[0].ID, out.Results[0].Error
}

var (
	secretBody = strings.Repeat("a body that no log may hold ", 1000) // goes into an object
	sequenced  = `{"messages":[{"body":"` + secretBody + `"}],"producer":{"id":"p","sequence":1}}`
)

// untilAccepted retries as a client does: on what is called retryable, after Retry-After, under the same sequence.
func (r *rig) untilAccepted(most time.Duration) (id string, calls int) {
	r.t.Helper()
	began := time.Now()
	for time.Since(began) < most {
		calls++
		a := r.call("POST", "/v1/topics/t/messages", sequenced)
		id, e := outcome(a)
		if e.Code == "" && id != "" {
			return id, calls
		}
		if !e.Retryable || e.Message == "" || !e.Code.Retryable() {
			r.t.Fatalf("call %d: %d %s", calls, a.StatusCode, a.Body)
		}
		if a.StatusCode != http.StatusOK && a.Headers["Retry-After"] == "" {
			r.t.Errorf("call %d: %d without Retry-After", calls, a.StatusCode)
		}
		time.Sleep(time.Second)
	}
	r.t.Fatalf("not accepted in %v, %d calls", most, calls)
	return "", 0
}

// all claims everything there is and acks it; a message must be there once.
func (r *rig) all() (ids []string) {
	r.t.Helper()
	for {
		var out struct {
			Messages []struct{ ID, Body, Receipt string }
		}
		a := r.call("POST", "/v1/topics/t/subscriptions/s/claims", `{"max_messages":100}`)
		if a.StatusCode != http.StatusOK || json.Unmarshal([]byte(a.Body), &out) != nil {
			r.t.Fatalf("claim: %d %.300s", a.StatusCode, a.Body)
		}
		if len(out.Messages) == 0 {
			return ids
		}
		for _, m := range out.Messages {
			if m.Body != secretBody {
				r.t.Errorf("%s came back otherwise", m.ID)
			}
			ids = append(ids, m.ID)
			if a := r.call("POST", "/v1/topics/t/subscriptions/s/ack", `{"receipts":["`+m.Receipt+`"]}`); a.StatusCode != http.StatusOK {
				r.t.Errorf("ack: %d %s", a.StatusCode, a.Body)
			}
		}
	}
}

// TestStoreFailsForAMinute: a store refuses everything for a minute, or does not answer at all. Each call ends
// in time with what the caller can act on, requests are repeated with jitter and not without end, and in the end
// the message is there once.
func TestStoreFailsForAMinute(t *testing.T) {
	for name, c := range map[string]struct {
		door func(*rig) *cloudtest.Door
		how  cloudtest.Outcome
	}{
		"the table throttles":          {func(r *rig) *cloudtest.Door { return r.Dynamo }, cloudtest.Throttled},
		"S3 says SlowDown":             {func(r *rig) *cloudtest.Door { return r.S3 }, cloudtest.SlowDown},
		"the table hangs":              {func(r *rig) *cloudtest.Door { return r.Dynamo }, cloudtest.Hang},
		"S3 hangs":                     {func(r *rig) *cloudtest.Door { return r.S3 }, cloudtest.Hang},
		"the table's answers are lost": {func(r *rig) *cloudtest.Door { return r.Dynamo }, cloudtest.Lose},
		"S3's answers are lost":        {func(r *rig) *cloudtest.Door { return r.S3 }, cloudtest.Lose},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(r *rig) {
				door, began := c.door(r), time.Now()
				door.Set(func(int, *http.Request) cloudtest.Outcome {
					if time.Since(began) < time.Minute {
						return c.how
					}
					return cloudtest.Pass
				})
				id, calls := r.untilAccepted(5 * time.Minute)
				seen := door.Seen()
				t.Logf("accepted after %v, %d calls, %d requests", time.Since(began), calls, len(seen))
				if len(seen) > 60*calls {
					t.Errorf("%d requests for %d calls", len(seen), calls)
				}
				// Without a network only pauses take time: the client's of a second, and those between tries.
				pauses, different := 0, map[time.Duration]bool{}
				for i := 1; i < len(seen); i++ {
					if gap := seen[i].Sub(seen[i-1]); gap != 0 && gap != time.Second {
						pauses++
						different[gap] = true
					}
				}
				if c.how != cloudtest.Hang && (pauses < 10 || len(different) < pauses*9/10) {
					t.Errorf("%d pauses between %d requests, %d different: where is the jitter?", pauses, len(seen), len(different))
				}
				if ids := r.all(); len(ids) != 1 || ids[0] != id {
					t.Errorf("accepted %s, claimed %v", id, ids)
				}
			})
		})
	}
}

// TestTimeIsUp: whatever the call, a table that does not answer is not the caller's fault, and nobody says that
// nothing was changed who cannot know.
func TestTimeIsUp(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		codes              []queue.Code
	}{
		{"GET", "/v1/topics", "", []queue.Code{queue.CodeUnavailable}},
		{"GET", "/v1/topics/t", "", []queue.Code{queue.CodeUnavailable}},
		{"PATCH", "/v1/topics/t", `{"default_ttl":60}`, []queue.Code{queue.CodeUnavailable, queue.CodeOutcomeUnknown}},
		{"PUT", "/v1/topics/new", `{}`, []queue.Code{queue.CodeUnavailable, queue.CodeOutcomeUnknown}},
		{"DELETE", "/v1/topics/t/subscriptions/s", "", []queue.Code{queue.CodeUnavailable, queue.CodeOutcomeUnknown}},
		{"POST", "/v1/topics/t/subscriptions/s/claims", `{"wait":20}`, []queue.Code{queue.CodeUnavailable, queue.CodeOutcomeUnknown}},
	} {
		t.Run(c.method+c.path, func(t *testing.T) {
			simulated(t, func(r *rig) {
				r.API = r.another(cloudtest.Table, cloudtest.Bucket) // nothing is in its caches
				r.Dynamo.Set(func(int, *http.Request) cloudtest.Outcome { return cloudtest.Hang })
				a := r.call(c.method, c.path, c.body)
				if e := errorOf(a); a.StatusCode != http.StatusServiceUnavailable || !slices.Contains(c.codes, e.Code) || !e.Retryable || a.Headers["Retry-After"] == "" {
					t.Errorf("%d %s %v", a.StatusCode, a.Body, a.Headers)
				}
			})
		})
	}
}

// TestEachAnswerLost: whichever of a call's requests loses its answer, or is the last before the process ends, the
// client's retry under the same sequence gives one message.
func TestEachAnswerLost(t *testing.T) {
	for _, of := range []string{"dynamo", "s3"} {
		for n := 1; ; n++ {
			reached := false
			t.Run(fmt.Sprint(of, n), func(t *testing.T) {
				simulated(t, func(r *rig) {
					door := r.Dynamo
					if of == "s3" {
						door = r.S3
					}
					dead := false
					die := func(_ int, _ *http.Request) cloudtest.Outcome {
						if dead {
							return cloudtest.Hang // a dead process asks for nothing
						}
						return cloudtest.Pass
					}
					r.Dynamo.Set(die)
					r.S3.Set(die)
					door.Set(func(i int, _ *http.Request) cloudtest.Outcome {
						if dead {
							return cloudtest.Hang
						}
						if i == n {
							reached, dead = true, true
							return cloudtest.Lose
						}
						return cloudtest.Pass
					})
					first, _ := outcome(r.call("POST", "/v1/topics/t/messages", sequenced))
					r.Dynamo.Set(nil)
					r.S3.Set(nil)
					r.API = r.another(cloudtest.Table, cloudtest.Bucket)
					id, _ := r.untilAccepted(2 * time.Minute)
					if first != "" && first != id {
						t.Errorf("acknowledged %s, then %s", first, id)
					}
					if ids := r.all(); len(ids) != 1 || ids[0] != id {
						t.Errorf("accepted %s, claimed %v", id, ids)
					}
				})
			})
			if !reached {
				break
			}
		}
	}
}

// TestWrongDeployment: what whoever runs the service has to put right is a clear answer to the caller, and a line in
// the log that says what to do.
func TestWrongDeployment(t *testing.T) {
	always := func(o cloudtest.Outcome) func(int, *http.Request) cloudtest.Outcome {
		return func(int, *http.Request) cloudtest.Outcome { return o }
	}
	for name, c := range map[string]struct {
		arrange   func(r *rig)
		status    int
		code      queue.Code
		retryable bool
		log       string
	}{
		"no such table": {
			func(r *rig) { r.API = r.another("none", cloudtest.Bucket) },
			503, queue.CodeUnavailable, true, "the table is missing: check its name, region and that the stack is deployed",
		},
		"no such bucket": {
			func(r *rig) { r.API = r.another(cloudtest.Table, "none") },
			500, queue.CodeInternal, false, "the bucket does not exist: deploy it, or correct the setting",
		},
		"a table of other keys": {
			func(r *rig) { r.otherTable(); r.API = r.another("other", cloudtest.Bucket) },
			500, queue.CodeInternal, false, "the table's keys are not pk and sk",
		},
		"a table of another version": {
			func(r *rig) { r.newerLayout() },
			500, queue.CodeCorrupt, false, "another version of Spillway wrote the table",
		},
		"credentials of the table have expired": {
			func(r *rig) { r.Dynamo.Set(always(cloudtest.Expired)) },
			503, queue.CodeUnavailable, true, "does not accept the credentials",
		},
		"credentials of the bucket have expired": {
			func(r *rig) { r.S3.Set(always(cloudtest.ExpiredS3)) },
			500, queue.CodeInternal, false, "refuses our credentials: ExpiredToken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(r *rig) {
				c.arrange(r)
				a := r.call("POST", "/v1/topics/t/messages", sequenced)
				_, e := outcome(a)
				if e.Code != c.code || e.Retryable != c.retryable || c.code.Status() != c.status || e.Message == "" {
					t.Errorf("%d %s", a.StatusCode, a.Body)
				}
				if strings.Contains(a.Body, cloudtest.Table) || strings.Contains(a.Body, "goroutine") {
					t.Errorf("the answer tells too much: %s", a.Body)
				}
				if !strings.Contains(r.log.String(), `"Faults":1`) {
					t.Error("no metric tells of a fault")
				}
				if !strings.Contains(r.log.String(), c.log) {
					t.Errorf("the log does not say %q:\n%s", c.log, r.log)
				}
			})
		})
	}
}

// otherTable makes a table "other" whose key is another's.
func (r *rig) otherTable() {
	r.t.Helper()
	_, err := r.Client().CreateTable(r.t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("other"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// newerLayout makes every head one that a later version wrote.
func (r *rig) newerLayout() {
	r.t.Helper()
	out, err := r.Client().Scan(r.t.Context(), &dynamodb.ScanInput{TableName: aws.String(cloudtest.Table)})
	if err != nil {
		r.t.Fatal(err)
	}
	changed := 0
	for _, item := range out.Items {
		if k, ok := item["k"].(*types.AttributeValueMemberS); ok && k.Value == "h1" {
			changed++
			item["k"] = &types.AttributeValueMemberS{Value: "h9"}
			if _, err := r.Client().PutItem(r.t.Context(), &dynamodb.PutItemInput{TableName: aws.String(cloudtest.Table), Item: item}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if changed == 0 {
		r.t.Fatal("there is no head")
	}
}
