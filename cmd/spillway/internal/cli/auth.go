package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/client/sigv4"
)

// Values of --auth and SPILLWAY_AUTH.
const (
	authAuto  = "auto"
	authIAM   = "iam"
	authToken = "token"
	authNone  = "none"
)

// chooseAuth settles how calls say who makes them: a token if there is one, else a signature where the
// URL is that of an API Gateway.
func (c *config) chooseAuth(flag string, lookup func(string) (string, bool)) error {
	source := "--auth"
	if flag == "" {
		flag = authAuto
		if v, ok := lookup(envAuth); ok && v != "" {
			flag, source = v, envAuth
		}
	}
	switch flag {
	case authAuto:
		_, gateway := sigv4.Region(c.endpoint)
		switch {
		case c.token != "":
			flag = authToken
		case gateway:
			flag = authIAM
		default:
			flag = authNone
		}
	case authToken:
		if c.token == "" {
			return exit.Usagef("%s: %s wants a token: give --token-file FILE or set %s", source, authToken, envToken)
		}
	case authIAM, authNone:
	default:
		return exit.Usagef("%s: %q is none of %s, %s, %s and %s", source, flag, authAuto, authIAM, authToken, authNone)
	}
	c.auth = flag
	return nil
}

// behindGateway reports whether the server is, as far as can be told, a deployment behind API Gateway.
func (c *config) behindGateway() bool {
	_, gateway := sigv4.Region(c.endpoint)
	return gateway || c.auth == authIAM
}

// clientOptions are the SDK's options for the configured server, but for retries.
func (c *config) clientOptions(ctx context.Context, userAgent string) (client.Options, error) {
	o := client.Options{UserAgent: userAgent}
	if c.behindGateway() {
		o.MaxRequestBytes = sigv4.MaxRequestBytes
	}
	switch {
	case c.auth == authIAM:
		cfg, err := awsConfig(ctx, "")
		if err != nil {
			return o, err
		}
		o.TLS = tlsOf(cfg)
		// The URL's region is the API's, whatever is configured.
		region, ok := sigv4.Region(c.endpoint)
		if !ok {
			region = cfg.Region
		}
		if region == "" {
			return o, exit.Usagef("--auth %s: the region cannot be told from %s: set AWS_REGION, or a region in the profile", authIAM, c.endpoint)
		}
		o.Signer, err = sigv4.New(cfg.Credentials, sigv4.Options{Region: region})
		return o, err
	case c.auth == authToken && c.tokenFile != "":
		o.Signer = &fileToken{path: c.tokenFile, token: c.token}
	case c.auth == authToken:
		o.Token = c.token
	}
	return o, nil
}

// awsConfig is what the usual environment, files and services say: AWS_PROFILE, AWS_ACCESS_KEY_ID, SSO,
// containers, instances. No call is made. Region, if not empty, wins over theirs.
func awsConfig(ctx context.Context, region string) (aws.Config, error) {
	var options []func(*awsconfig.LoadOptions) error
	if region != "" {
		options = append(options, awsconfig.WithRegion(region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, options...)
	var profile awsconfig.SharedConfigProfileNotExistError
	switch {
	case errors.As(err, &profile):
		return cfg, exit.Usagef("AWS profile %q is in none of the files: see those there are with: aws configure list-profiles", profile.Profile)
	case err != nil:
		return cfg, fmt.Errorf("AWS configuration: %w", err)
	}
	return cfg, nil
}

// tlsOf gives the TLS settings of the AWS configuration: AWS_CA_BUNDLE is for the API, too. Nil for none.
func tlsOf(cfg aws.Config) *tls.Config {
	h, ok := cfg.HTTPClient.(*awshttp.BuildableClient)
	if !ok {
		return nil
	}
	t := h.GetTransport().TLSClientConfig
	if t == nil || t.RootCAs == nil {
		return nil
	}
	return &tls.Config{RootCAs: t.RootCAs, MinVersion: tls.VersionTLS12}
}

// fileToken sends the token of a file, and reads the file again when the token is refused: whoever renews
// tokens writes them there.
type fileToken struct {
	path string

	mu    sync.Mutex // guards token
	token string
}

// Sign sends the token.
func (f *fileToken) Sign(req *http.Request, _ []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	req.Header.Set("Authorization", "Bearer "+f.token)
	return nil
}

// Refused looks for another token.
func (f *fileToken) Refused(client.Refusal) (again bool, advice string) {
	advice = "the token is refused: see that it has not expired, and is for this API"
	token, err := readToken(f.path)
	if err != nil {
		return false, advice
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if token == f.token {
		return false, advice
	}
	f.token = token
	return true, advice
}
