package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"
)

// The tests run one after another: the pipe to the Node.js process bears no t.Parallel.
func TestMain(m *testing.M) {
	if _, err := exec.LookPath("node"); err != nil {
		fmt.Fprintln(os.Stderr, "the tests of infra run the CDK in Node.js, and there is no node in PATH: install Node.js 20 or newer")
		os.Exit(1)
	}
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

// codeDir makes a folder of stand-ins for the built functions.
func codeDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []string{"produce", "consume", "leader", "compactor"} {
		if err := os.Mkdir(filepath.Join(dir, f), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f, "bootstrap"), []byte(f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// template synthesizes the app and gives what it wrote for the stack.
func template(t *testing.T, stack string, given map[string]any) map[string]any {
	t.Helper()
	out := t.TempDir()
	var log bytes.Buffer
	if given["code"] == nil {
		given["code"] = codeDir(t)
	}
	if err := synth(given, appOptions{Outdir: out}, &log); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	data, err := os.ReadFile(filepath.Join(out, stack+".template.json"))
	if err != nil {
		t.Fatal(err)
	}
	var tpl map[string]any
	if err := json.Unmarshal(data, &tpl); err != nil {
		t.Fatal(err)
	}
	return tpl
}

// TestClean holds the usual forms of a deployment against cdk-nag: synth fails on a finding.
func TestClean(t *testing.T) {
	for name, given := range map[string]map[string]any{
		"defaults": {},
		"everything on": {
			"auth": "jwt", "jwtIssuer": "https://issuer.example", "jwtAudience": "a, b", "jwtScopes": "queue", "corsOrigins": "https://app.example",
			"tracing": "true", "uploadExpiryDays": "400", "leaderConcurrency": "1", "arch": "amd64", "logRetentionDays": "0", "oldestMessageAge": "1h",
			"alarmTopic": "arn:aws:sns:us-east-1:000000000000:ops", "dashboard": "false", "logLevel": "debug", "rateLimit": "5", "burstLimit": 6,
		},
		"data goes, too": {"data": "destroy", "compactorConcurrency": 0},
		"existing data":  {"bucket": "old-bucket", "table": "old-table"},
	} {
		t.Run(name, func(t *testing.T) { template(t, "Spillway", given) })
	}
}

// TestFindingIsAnError checks the checker: a bucket without anything has findings.
func TestFindingIsAnError(t *testing.T) {
	app, err := newApp(map[string]any{"code": codeDir(t)}, appOptions{Outdir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	stack, err := addStack(app)
	if err != nil {
		t.Fatal(err)
	}
	awss3.NewBucket(stack, jsii.String("Careless"), nil)
	var log bytes.Buffer
	if err := finish(app, &log); err == nil {
		t.Error("no error")
	}
}

// TestWarningIsAnError: Synth itself fails on errors only.
func TestWarningIsAnError(t *testing.T) {
	app, err := newApp(map[string]any{"code": codeDir(t)}, appOptions{Outdir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	stack, err := addStack(app)
	if err != nil {
		t.Fatal(err)
	}
	awscdk.Annotations_Of(stack).AddWarningV2(jsii.String("test"), jsii.String("careful"), nil)
	var log bytes.Buffer
	if err := finish(app, &log); err == nil || !strings.Contains(log.String(), "careful") {
		t.Errorf("error %v, log %q", err, &log)
	}
}

func TestOutputs(t *testing.T) {
	tpl := template(t, "Other", map[string]any{"stack": "Other", "version": "v1.2.3"})
	outputs := tpl["Outputs"].(map[string]any)
	for _, id := range []string{"ApiUrl", "TableName", "BucketName", "Version"} {
		if outputs[id] == nil {
			t.Errorf("no output %s", id)
		}
	}
	if len(outputs) != 4 {
		t.Errorf("%d outputs, want 4: %v", len(outputs), slices.Sorted(maps.Keys(outputs)))
	}
	if v := outputs["Version"].(map[string]any)["Value"]; v != "v1.2.3" {
		t.Errorf("Version is %v", v)
	}
}

// TestVersionChangesNothingElse: a new version of unchanged functions must redeploy none of them.
func TestVersionChangesNothingElse(t *testing.T) {
	code := codeDir(t)
	a := template(t, "Spillway", map[string]any{"code": code, "version": "v1"})
	b := template(t, "Spillway", map[string]any{"code": code, "version": "v2"})
	for _, tpl := range []map[string]any{a, b} {
		delete(tpl["Outputs"].(map[string]any), "Version")
	}
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("the version changes more than the output Version")
	}
}

func TestBadSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		given map[string]any
		want  string
	}{
		"mistyped":              {map[string]any{"logLevl": "info"}, `unknown setting "logLevl"`},
		"data":                  {map[string]any{"data": "delete"}, "data=delete: must be destroy or keep"},
		"auth":                  {map[string]any{"auth": "none"}, "auth=none: must be jwt or iam"},
		"jwt without issuer":    {map[string]any{"auth": "jwt"}, "JWT.Issuer is missing"},
		"issuer without auth":   {map[string]any{"jwtIssuer": "https://issuer.example"}, "want auth=jwt"},
		"issuer with iam":       {map[string]any{"auth": "iam", "jwtIssuer": "https://issuer.example"}, "want auth=jwt"},
		"days":                  {map[string]any{"logRetentionDays": "31"}, "logRetentionDays=31: must be 1, 7"},
		"a number":              {map[string]any{"rateLimit": "many"}, "rateLimit=many"},
		"a negative number":     {map[string]any{"uploadExpiryDays": "-1"}, "must not be negative"},
		"a duration":            {map[string]any{"oldestMessageAge": "15"}, "oldestMessageAge=15"},
		"a table and no bucket": {map[string]any{"table": "t"}, "a bucket and a table"},
		"not built":             {map[string]any{"code": t.TempDir()}, "function leader is not built"},
		"architecture":          {map[string]any{"arch": "x86"}, `not "x86"`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.given["code"] == nil {
				tc.given["code"] = codeDir(t)
			}
			err := synth(tc.given, appOptions{Outdir: t.TempDir()}, new(bytes.Buffer))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that says %q", err, tc.want)
			}
		})
	}
}

// TestDocumentedSettings compares the table in docs/aws.md with the code.
func TestDocumentedSettings(t *testing.T) {
	doc, err := os.ReadFile("../docs/aws.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## Settings\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, known []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(section, -1) {
		for _, key := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, key[1])
		}
	}
	for _, s := range settings() {
		known = append(known, s.key)
	}
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("docs/aws.md lists %v, the code %v", documented, known)
	}
}

func TestArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no value":      {[]string{"-c", "auth"}, "want KEY=VALUE"},
		"unknown flag":  {[]string{"-x"}, "not defined"},
		"loose word":    {[]string{"deploy"}, `unexpected argument "deploy"`},
		"key not known": {[]string{"-c", "Stack=A", "-c", "stak=A"}, `unknown setting "stak"`},
	} {
		t.Run(name, func(t *testing.T) {
			given, err := parse(tc.args, new(bytes.Buffer))
			if err == nil {
				err = synth(given, appOptions{Outdir: t.TempDir()}, new(bytes.Buffer))
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one that says %q", err, tc.want)
			}
		})
	}
}
