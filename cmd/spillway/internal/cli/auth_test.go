package cli

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/client/sigv4"
)

const gatewayURL = "https://abc.execute-api.eu-west-1.amazonaws.com"

func TestChooseAuth(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint, flag, env, token string
		want                       string // empty for a usage error
		limited                    bool
	}{
		"a server of one's own":            {"http://127.0.0.1:1", "", "", "", authNone, false},
		"with a token":                     {"http://127.0.0.1:1", "", "", "t", authToken, false},
		"an API Gateway":                   {gatewayURL, "", "", "", authIAM, true},
		"an API Gateway that takes tokens": {gatewayURL, "", "", "t", authToken, true},
		"a token that is not meant":        {gatewayURL, "iam", "", "t", authIAM, true},
		"a domain of one's own":            {"https://queue.example", "", "", "", authNone, false},
		"by the environment":               {"https://queue.example", "", "iam", "", authIAM, true},
		"a flag wins":                      {"https://queue.example", "none", "iam", "", authNone, false},
		"auto by name":                     {gatewayURL, "auto", "none", "", authIAM, true},
		"no token":                         {gatewayURL, "token", "", "", "", false},
		"mistyped":                         {gatewayURL, "aim", "", "", "", false},
		"mistyped in the environment":      {gatewayURL, "", "aim", "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{envAuth: c.env, envToken: c.token}
			g := globals{endpoint: c.endpoint, auth: c.flag, output: outputJSON, timeout: units.NewDuration(time.Second)}
			got, err := configure(g, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
			if c.want == "" {
				if exit.CodeOf(err) != exit.Usage || !strings.Contains(err.Error(), "auth") && !strings.Contains(err.Error(), envAuth) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || got.auth != c.want || got.behindGateway() != c.limited || got.token != c.token {
				t.Errorf("%+v, %v, want %s", got, err, c.want)
			}
		})
	}
}

// awsEnvironment points the SDK's configuration to nothing but what is set here.
func awsEnvironment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CA_BUNDLE",
		"AWS_ENDPOINT_URL", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE",
	} {
		t.Setenv(name, set[name])
	}
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("AWS_CONFIG_FILE", none)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", none)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestSigningOptions(t *testing.T) {
	awsEnvironment(t, map[string]string{"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "s"})
	c := config{endpoint: gatewayURL, auth: authIAM, token: "t"}
	o, err := c.clientOptions(t.Context(), "test")
	if err != nil || o.Token != "" || o.MaxRequestBytes != sigv4.MaxRequestBytes {
		t.Fatalf("%+v, %v", o, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gatewayURL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Signer.Sign(req, nil); err != nil || !strings.Contains(req.Header.Get("Authorization"), "/eu-west-1/execute-api/") {
		t.Errorf("%v: %v", req.Header, err)
	}
	c.endpoint = "https://queue.example"
	if _, err := c.clientOptions(t.Context(), "test"); exit.CodeOf(err) != exit.Usage || !strings.Contains(err.Error(), "AWS_REGION") {
		t.Errorf("without a region: %v", err)
	}
	t.Setenv("AWS_PROFILE", "nobody")
	if _, err := c.clientOptions(t.Context(), "test"); exit.CodeOf(err) != exit.Usage || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("a profile that is not there: %v", err)
	}
}

func TestNoCredentialsAnywhere(t *testing.T) {
	awsEnvironment(t, nil)
	c := config{endpoint: gatewayURL, auth: authIAM}
	cl, err := c.newClient(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	_, err = cl.GetTopic(t.Context(), "orders")
	if line := exit.Line(err, gatewayURL); exit.CodeOf(err) != exit.Failure || !strings.Contains(line, "set AWS_PROFILE") || strings.Contains(line, "operation error") {
		t.Errorf("%d: %s", exit.CodeOf(err), line)
	}
}

// TestFileToken: a token that was renewed in its file is taken up when the old one is refused.
func TestFileToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	f := &fileToken{path: path, token: "first"}
	sent := func() string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, gatewayURL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Sign(req, nil); err != nil {
			t.Fatal(err)
		}
		return req.Header.Get("Authorization")
	}
	if again, advice := f.Refused(client.Refusal{}); again || !strings.Contains(advice, "expired") || strings.Contains(advice, "first") {
		t.Errorf("the same token again: %v, %q", again, advice)
	}
	write("second")
	if again, _ := f.Refused(client.Refusal{}); !again || sent() != "Bearer second" {
		t.Errorf("again %v, sent %q", again, sent())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if again, _ := f.Refused(client.Refusal{}); again || sent() != "Bearer second" {
		t.Errorf("without its file: again %v, sent %q", again, sent())
	}
}
