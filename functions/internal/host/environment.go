package host

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/spillway-mq/spillway/pkg/cloud"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// FromEnvironment reads SPILLWAY_TABLE, SPILLWAY_BUCKET and SPILLWAY_LOG_LEVEL (debug, info, warn or
// error; info unless set), and of what Lambda and AWS programs know AWS_REGION, AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_CA_BUNDLE, AWS_ENDPOINT_URL, AWS_ENDPOINT_URL_DYNAMODB and
// AWS_ENDPOINT_URL_S3 and AWS_LAMBDA_RUNTIME_API. Invalid, naming the variable, if one that is needed is missing or one is wrong.
func FromEnvironment(function string, getenv func(string) string) (Config, error) {
	c := Config{Function: function}
	for name, field := range map[string]*string{"SPILLWAY_TABLE": &c.Table, "SPILLWAY_BUCKET": &c.Bucket, "AWS_REGION": &c.AWS.Region} {
		if *field = getenv(name); *field == "" {
			return c, queue.Invalid(name, nil, "is not set")
		}
	}
	if level := getenv("SPILLWAY_LOG_LEVEL"); level != "" {
		if err := c.LogLevel.UnmarshalText([]byte(level)); err != nil {
			return c, queue.Invalid("SPILLWAY_LOG_LEVEL", nil, "must be debug, info, warn or error")
		}
	}
	c.Leader, c.LambdaURL = getenv("SPILLWAY_LEADER"), lambdaURL(getenv, c.AWS.Region)
	c.RuntimeAPI = getenv("AWS_LAMBDA_RUNTIME_API")
	err := c.readAWS(getenv)
	return c, err
}

// readAWS makes what the SDK's config package would make of Lambda's environment. That package knows a dozen
// other places for credentials, and the clients of four services to get them with: a seventh of the program
// that a function's cold start would load, and never uses.
func (c *Config) readAWS(getenv func(string) string) error {
	c.AWS.Credentials = environment(getenv)
	c.AWS.ConfigSources = []any{endpoints(getenv)}
	if url := getenv("AWS_ENDPOINT_URL"); url != "" {
		c.AWS.BaseEndpoint = &url
	}
	client := cloud.HTTPClient()
	if bundle := getenv("AWS_CA_BUNDLE"); bundle != "" {
		pem, err := os.ReadFile(bundle)
		roots := x509.NewCertPool()
		if err != nil || !roots.AppendCertsFromPEM(pem) {
			return queue.Invalid("AWS_CA_BUNDLE", nil, "names no file of certificates that can be read")
		}
		client = client.WithTransportOptions(func(t *http.Transport) {
			t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		})
	}
	c.AWS.HTTPClient = client
	return nil
}

// environment gives the credentials of the function's role. Lambda puts them into the environment and starts
// a process anew before they expire. They are read at each use: reading costs less than a cache.
type environment func(string) string

// Retrieve implements aws.CredentialsProvider.
func (e environment) Retrieve(context.Context) (aws.Credentials, error) {
	c := aws.Credentials{
		AccessKeyID: e("AWS_ACCESS_KEY_ID"), SecretAccessKey: e("AWS_SECRET_ACCESS_KEY"),
		SessionToken: e("AWS_SESSION_TOKEN"), Source: "environment",
	}
	if c.AccessKeyID == "" || c.SecretAccessKey == "" {
		return c, &queue.Error{Op: "read credentials", Kind: queue.KindDenied, Code: queue.CodeUnauthorized, Message: "AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is not set"}
	}
	return c, nil
}

// endpoints tells the SDK the endpoint of one service: an emulator's, or a test's, that stands in for it alone.
type endpoints func(string) string

// GetServiceBaseEndpoint is what the SDK looks for in aws.Config.ConfigSources. The id is "DynamoDB" or "S3".
func (e endpoints) GetServiceBaseEndpoint(_ context.Context, id string) (string, bool, error) {
	url := e("AWS_ENDPOINT_URL_" + strings.ToUpper(id))
	return url, url != "", nil
}
