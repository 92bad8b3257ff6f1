//go:build localstack

package localstack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// program is the built CLI, set up to speak to a deployment.
type program struct {
	path, dir string
	env       []string
}

// newProgram builds the CLI. It signs with the credentials of the environment, as a user's does.
func newProgram(t *testing.T, w *workshop, d *deployment) *program {
	t.Helper()
	p := &program{path: filepath.Join(w.dir, "spillway"), dir: t.TempDir()}
	w.command(t, 5*time.Minute, "go", "build", "-o", p.path, "./cmd/spillway")
	p.env = append(w.environment(), "SPILLWAY_ENDPOINT="+d.api, "SPILLWAY_AUTH=iam", "SPILLWAY_TOKEN=")
	return p
}

// with gives the program more environment.
func (p *program) with(env ...string) *program {
	return &program{p.path, p.dir, append(slices.Clone(p.env), env...)}
}

// run runs the program, which must end with that code.
func (p *program) run(t *testing.T, code int, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, args...)
	cmd.Dir, cmd.Env, cmd.Stdin = p.dir, p.env, strings.NewReader(stdin)
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("spillway %s: exit code %d, want %d\n%.2000s\n%.2000s", strings.Join(args, " "), got, code, &out, &diagnostics)
	}
	return out.String(), diagnostics.String()
}

// checksums finds the lines of --checksum.
func checksums(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "checksum ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// formats: what goes in, in each format, comes out the same.
func formats(t *testing.T, p *program) {
	random := make([]byte, 3<<19)
	for i := range random {
		random[i] = byte(i*i>>3 ^ i)
	}
	long := strings.Repeat(strings.Repeat("x", 999)+"\n", 5000) // 5 MB: several calls
	for name, c := range map[string]struct {
		input string
		args  []string
		count int
	}{
		"lines":                        {"one\ntwo\n\nthr\xffee\n", nil, 3},
		"jsonl":                        {`{"k":"a","n":1}` + "\n" + `{"k":"b"}` + "\n", []string{"--key", "$.k"}, 2},
		"csv":                          {"name,age\nann,7\nbob,8\n", []string{"--format", "csv", "--key", "name"}, 2},
		"deb822":                       {"Package: a\nVersion: 1\n\nPackage: b\nVersion: 2\n", []string{"--format", "deb822", "--key", "Source|Package"}, 2},
		"raw, binary":                  {"\x00\xff\xfe binary", []string{"--format", "raw"}, 1},
		"raw, larger than a message":   {string(random), []string{"--format", "raw"}, 1},
		"raw, larger than a call":      {strings.Repeat(string(random), 5), []string{"--format", "raw"}, 1},
		"raw, by reference":            {strings.Repeat(string(random), 8), []string{"--format", "raw", "--by-reference", "--max-record", "64MiB"}, 1},
		"many lines":                   {long, nil, 5000},
		"many lines, by reference":     {long, []string{"--by-reference"}, 5000},
		"many lines, a call for each":  {strings.Repeat("line\n", 40), []string{"--batch", "1", "--lanes", "8"}, 40},
		"more in a call than it takes": {long, []string{"--batch", "5000", "--lanes", "1"}, 5000},
	} {
		t.Run(name, func(t *testing.T) {
			topic := "format." + strings.NewReplacer(" ", "-", ",", "").Replace(name)
			p.run(t, 0, "", "topic", "create", topic, "--segments", "2")
			in, _ := p.run(t, 0, c.input, append([]string{"produce", topic, "--checksum"}, c.args...)...)
			out, end := p.run(t, 0, "", "consume", topic, "s", "--create", "--checksum")
			want := checksums(in)
			if got := checksums(out + end); want == "" || got != want {
				t.Errorf("went in as %q, came out as %q\n%s", want, got, end)
			}
			if !strings.Contains(strings.ReplaceAll(want, ",", ""), fmt.Sprintf("of %d message", c.count)) {
				t.Errorf("%q, want %d messages", want, c.count)
			}
		})
	}
}

// commands: each kind of command, by the built program, with AWS credentials.
func commands(t *testing.T, p *program) {
	p.run(t, 0, "", "topic", "create", "cli", "--default-delay", "10m")
	p.run(t, 0, "", "topic", "update", "cli", "--attribute", "team=a")
	p.run(t, 0, "a\nb\n", "produce", "cli")
	p.run(t, 0, "now\n", "produce", "cli", "--delay", "0")
	list, _ := p.run(t, 0, "", "delayed", "list", "cli", "--output", "json")
	var first struct {
		DelayedID string `json:"delayed_id"`
	}
	if err := json.Unmarshal([]byte(strings.SplitN(list, "\n", 2)[0]), &first); err != nil || first.DelayedID == "" || strings.Count(list, "\n") != 2 {
		t.Fatalf("%v: %s", err, list)
	}
	p.run(t, 0, "", "delayed", "edit", "cli", first.DelayedID, "--body", "edited", "--delay", "9m")
	p.run(t, 0, "", "delayed", "cancel", "cli", first.DelayedID)
	if list, _ = p.run(t, 0, "", "delayed", "list", "cli", "--output", "json"); strings.Count(list, "\n") != 1 {
		t.Errorf("after one was cancelled: %s", list)
	}
	p.run(t, 0, "", "subscription", "create", "cli", "s", "--start", "earliest", "--visibility-timeout", "1m")
	p.run(t, 0, "", "subscription", "update", "cli", "s", "--visibility-timeout", "2m")
	for _, args := range [][]string{{"topic", "list", "--prefix", "cl"}, {"topic", "show", "cli"}, {"segments", "cli"}, {"subscription", "list", "cli"}, {"subscription", "show", "cli", "s"}} {
		if out, _ := p.run(t, 0, "", append(args, "--output", "json")...); !json.Valid([]byte(out)) {
			t.Errorf("%v: %s", args, out)
		}
	}
	if out, _ := p.run(t, 0, "", "peek", "cli"); !strings.Contains(out, "now") {
		t.Errorf("peek: %s", out)
	}
	// A command for each message; what it prints is the program's output.
	if out, _ := p.run(t, 0, "", "consume", "cli", "s", "--exec", "cat; echo \" $SPILLWAY_ATTEMPT\""); !strings.Contains(out, "now") {
		t.Errorf("consume --exec: %s", out)
	}
	p.run(t, 0, "", "subscription", "seek", "cli", "s", "--to", "earliest")
	if out, _ := p.run(t, 0, "", "consume", "cli", "s"); out != "now\n" {
		t.Errorf("replayed: %q", out)
	}
	p.run(t, 0, "", "subscription", "delete", "cli", "s")
	p.run(t, 0, "", "topic", "delete", "cli")
	p.run(t, 3, "", "topic", "show", "cli")

	endpoint := ""
	for _, v := range p.env {
		if rest, ok := strings.CutPrefix(v, "SPILLWAY_ENDPOINT="); ok {
			endpoint = rest
		}
	}
	out, _ := p.run(t, 0, "", "bench", "--endpoint", endpoint, "--messages", "200", "--batch", "50", "--producers", "2", "--consumers", "1", "--output", "json")
	var report struct{ Produced, Consumed uint64 }
	if err := json.Unmarshal([]byte(out), &report); err != nil || report.Produced < 200 || report.Consumed != report.Produced {
		t.Errorf("bench: %+v, %v", report, err)
	}
}

// refusals: whoever may not call is told why, and what to do, in a line without secrets.
func refusals(t *testing.T, p *program) {
	none := filepath.Join(t.TempDir(), "none")
	files := []string{"AWS_CONFIG_FILE=" + none, "AWS_SHARED_CREDENTIALS_FILE=" + none, "AWS_EC2_METADATA_DISABLED=true"}
	// The bundle is AWS's variable: without signing, the program trusts what the system does.
	bundle := "SSL_CERT_FILE=" + os.Getenv("AWS_CA_BUNDLE")
	for name, c := range map[string]struct {
		env  []string
		args []string
		code int
		want string
	}{
		"no credentials":     {append(files, "AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY="), nil, 1, "set AWS_PROFILE"},
		"no such profile":    {append(files, "AWS_PROFILE=nobody"), nil, 2, `"nobody"`},
		"no region":          {append(files, "AWS_REGION=", "AWS_DEFAULT_REGION="), nil, 2, "set AWS_REGION"},
		"not signed":         {[]string{bundle}, []string{"--auth", "none"}, 1, "--auth iam"},
		"no token":           {nil, []string{"--auth", "token"}, 2, "--token-file"},
		"mistyped":           {nil, []string{"--auth", "sigv4"}, 2, "--auth"},
		"nobody at the port": {[]string{"SPILLWAY_ENDPOINT=https://127.0.0.1:1"}, nil, 5, "no server at"},
	} {
		t.Run(name, func(t *testing.T) {
			out, text := p.with(c.env...).run(t, c.code, "", append([]string{"topic", "list"}, c.args...)...)
			if !strings.Contains(text, c.want) || strings.Count(text, "\n") != 1 || out != "" {
				t.Errorf("says %q, want %q in one line", text, c.want)
			}
		})
	}
}
