package dynamometa_test

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa/dynamotest"
	"github.com/spillway-mq/spillway/pkg/meta/metatest"
)

// endpoint is where the tests' DynamoDB is: what AWS_ENDPOINT_URL names, or one in this process.
func endpoint(t *testing.T) string {
	t.Helper()
	if url := os.Getenv("AWS_ENDPOINT_URL"); url != "" {
		return url
	}
	srv := httptest.NewServer(dynamotest.New())
	t.Cleanup(srv.Close)
	return srv.URL
}

// client speaks to url through rt; nil stands for the usual one.
func client(url string, rt http.RoundTripper, opts ...func(*dynamodb.Options)) *dynamodb.Client {
	o := dynamodb.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(url), HTTPClient: &http.Client{Transport: rt},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "test", SecretAccessKey: "test"}, nil
		}),
	}
	return dynamodb.New(o, opts...)
}

func newTable(t *testing.T, c *dynamodb.Client) string {
	t.Helper()
	name := "t" + rand.Text()
	if err := dynamometa.CreateTable(t.Context(), c, name); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestConformance(t *testing.T) {
	url := endpoint(t)
	c := client(url, nil)
	metatest.Run(t, metatest.Harness{
		New: func(t *testing.T) meta.Store { return dynamometa.New(c, newTable(t, c), dynamometa.Options{}) },
	})
}
