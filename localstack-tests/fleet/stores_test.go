//go:build localstack

package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
)

// newStores makes a table and a bucket on the emulator, whose endpoint and credentials are in the environment.
func newStores(t *testing.T) (table, bucket string) {
	t.Helper()
	u, err := url.Parse(os.Getenv("AWS_ENDPOINT_URL"))
	if err != nil || u.Host == "" || strings.HasSuffix(u.Hostname(), "amazonaws.com") {
		t.Fatalf("AWS_ENDPOINT_URL names no emulator: %q; `make test-aws` starts one", u)
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"} {
		if os.Getenv(name) == "" {
			t.Setenv(name, value)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("fleet-%d", time.Now().UnixNano())
	if err := dynamometa.CreateTable(ctx, dynamodb.NewFromConfig(cfg), name); err != nil {
		t.Fatal(err)
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(name)}); err != nil {
		t.Fatal(err)
	}
	return name, name
}

// newForeignTables makes tables that are not Spillway's: one with a key of another name, and one without a sort key.
func newForeignTables(t *testing.T) (other, half string) {
	t.Helper()
	cfg, err := config.LoadDefaultConfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := dynamodb.NewFromConfig(cfg)
	create := func(key string) string {
		in := dynamometa.TableInput(fmt.Sprintf("foreign-%s-%d", key, time.Now().UnixNano()))
		in.AttributeDefinitions, in.KeySchema = in.AttributeDefinitions[:1], in.KeySchema[:1]
		in.AttributeDefinitions[0].AttributeName, in.KeySchema[0].AttributeName = aws.String(key), aws.String(key)
		if _, err := client.CreateTable(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		return *in.TableName
	}
	return create("id"), create("pk")
}

// newClient makes a client that trusts the emulator, for presigned URLs.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	if bundle := os.Getenv("AWS_CA_BUNDLE"); bundle != "" {
		pem, err := os.ReadFile(bundle)
		if err != nil {
			t.Fatal(err)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem)
	}
	return &http.Client{Timeout: time.Minute, Transport: transport}
}
