//go:build localstack

package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// asDocumented makes a user with the rights that docs/aws.md lists for a process, for this table and bucket, and gives
// the environment of a process that runs as that user.
func asDocumented(t *testing.T, table, bucket string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "aws.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n## Processes\n")
	_, rest, _ = strings.Cut(rest, "```json\n")
	policy, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/aws.md has no policy under Processes")
	}
	policy = strings.NewReplacer("REGION", os.Getenv("AWS_REGION"), "ACCOUNT", "000000000000", "TABLE", table, "BUCKET", bucket).Replace(policy)
	iam(t, nil, "CreateUser", "UserName", table)
	iam(t, nil, "PutUserPolicy", "UserName", table, "PolicyName", "process", "PolicyDocument", policy)
	var made struct {
		Result struct {
			Key struct {
				ID     string `xml:"AccessKeyId"`
				Secret string `xml:"SecretAccessKey"`
			} `xml:"AccessKey"`
		} `xml:"CreateAccessKeyResult"`
	}
	iam(t, &made, "CreateAccessKey", "UserName", table)
	if made.Result.Key.ID == "" || made.Result.Key.Secret == "" {
		t.Fatalf("no key was made: %+v", made)
	}
	return append(os.Environ(), "AWS_ACCESS_KEY_ID="+made.Result.Key.ID, "AWS_SECRET_ACCESS_KEY="+made.Result.Key.Secret)
}

// iam calls the emulator's IAM; out may be nil.
func iam(t *testing.T, out any, action string, parameters ...string) {
	t.Helper()
	form := url.Values{"Action": {action}, "Version": {"2010-05-08"}}
	for i := 0; i+1 < len(parameters); i += 2 {
		form.Set(parameters[i], parameters[i+1])
	}
	body := []byte(form.Encode())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("AWS_ENDPOINT_URL"), bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	sum := sha256.Sum256(body)
	root := aws.Credentials{AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY")}
	if err := v4.NewSigner().SignHTTP(ctx, root, req, hex.EncodeToString(sum[:]), "iam", os.Getenv("AWS_REGION"), time.Now()); err != nil {
		t.Fatal(err)
	}
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", action, resp.StatusCode, data, err)
	}
	if out != nil {
		if err := xml.Unmarshal(data, out); err != nil {
			t.Fatalf("%s: %v in %s", action, err, data)
		}
	}
}
