package spillway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/jsii-runtime-go"

	"github.com/spillway-mq/spillway/infra/spillway"
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

// resource is one of a template's.
type resource struct {
	ID, Type       string
	DeletionPolicy string
	Properties     map[string]any
	DependsOn      any
}

// at follows a path of keys and indexes ("Rules.0.Id") into v; nil if it leads nowhere.
func at(v any, path string) any {
	for key := range strings.SplitSeq(path, ".") {
		switch node := v.(type) {
		case map[string]any:
			v = node[key]
		case []any:
			var i int
			if _, err := fmt.Sscan(key, &i); err != nil || i >= len(node) {
				return nil
			}
			v = node[i]
		default:
			return nil
		}
	}
	return v
}

func (r resource) at(path string) any { return at(r.Properties, path) }

// template is a synthesized stack.
type template struct {
	Resources map[string]*resource
}

// all lists the resources of a type, by id.
func (tpl *template) all(typ string) []*resource {
	var out []*resource
	for _, id := range slices.Sorted(maps.Keys(tpl.Resources)) {
		if r := tpl.Resources[id]; r.Type == typ {
			r.ID = id
			out = append(out, r)
		}
	}
	return out
}

// one gives the only resource of a type whose id contains part.
func (tpl *template) one(t *testing.T, typ, part string) *resource {
	t.Helper()
	var found []*resource
	for _, r := range tpl.all(typ) {
		if strings.Contains(r.ID, part) {
			found = append(found, r)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d resources of type %s with %q in their id, want one", len(found), typ, part)
	}
	return found[0]
}

// codeDir makes a folder of stand-ins for the built functions.
func codeDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range spillway.Functions() {
		sub := filepath.Join(dir, string(f))
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sub, "bootstrap"), []byte(f), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// synth gives the templates of stacks of one app, one for each props, by the names A, B, ….
func synth(t *testing.T, all ...spillway.Props) []*template {
	t.Helper()
	out := t.TempDir()
	app := awscdk.NewApp(&awscdk.AppProps{
		Outdir: &out, AnalyticsReporting: jsii.Bool(false), BuiltinCloudFormationValidation: jsii.Bool(false),
		Context: &map[string]any{"@aws-cdk/aws-iam:minimizePolicies": true},
	})
	for i := range all {
		props := all[i]
		props.CodeDir = codeDir(t)
		stack := awscdk.NewStack(app, jsii.String(string(rune('A'+i))), nil)
		if _, err := spillway.New(stack, "Spillway", &props); err != nil {
			t.Fatal(err)
		}
	}
	app.Synth(nil)
	var templates []*template
	for i := range all {
		data, err := os.ReadFile(filepath.Join(out, string(rune('A'+i))+".template.json"))
		if err != nil {
			t.Fatal(err)
		}
		tpl := new(template)
		if err := json.Unmarshal(data, tpl); err != nil {
			t.Fatal(err)
		}
		templates = append(templates, tpl)
	}
	return templates
}

// want holds v's parts, by path, against their values; nil means that it is not there.
func want(t *testing.T, r *resource, values map[string]any) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(values)) {
		got, want := r.at(path), values[path]
		if n, ok := want.(int); ok {
			want = float64(n)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %s is %v, want %v", r.ID, path, got, want)
		}
	}
}

// target resolves {"Ref": id}, {"Fn::GetAtt": [id, …]} or an ARN joined of one of them to the id and
// what follows it.
func target(t *testing.T, v any) (id, rest string) {
	t.Helper()
	switch node := v.(type) {
	case string:
		return "", node
	case map[string]any:
		if ref, ok := node["Ref"].(string); ok {
			return ref, ""
		}
		if id, ok := at(node, "Fn::GetAtt.0").(string); ok {
			return id, ""
		}
		if parts, ok := at(node, "Fn::Join.1").([]any); ok {
			for _, part := range parts {
				i, r := target(t, part)
				if i != "" && !strings.HasPrefix(i, "AWS::") {
					id = i
				} else {
					rest += r
				}
			}
			return id, rest
		}
	}
	t.Fatalf("what is this a reference to? %v", v)
	return "", ""
}

// texts gives a string, or a list of them, as a list.
func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, item := range v {
			out = append(out, fmt.Sprint(item))
		}
		return out
	}
	return nil
}
