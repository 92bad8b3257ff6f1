package spillway_test

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/infra/spillway"
)

// statement is one of a role's: "produce batches/* s3:PutObject".
func line(f spillway.Function, on, action string) string { return fmt.Sprint(f, " ", on, " ", action) }

// granted reads what the functions' roles allow out of a template.
func granted(t *testing.T, tpl *template) []string {
	t.Helper()
	var out []string
	leader := function(t, tpl, spillway.Leader).ID
	for _, f := range spillway.Functions() {
		fn := function(t, tpl, f)
		roleID, _ := target(t, fn.at("Role"))
		role := tpl.Resources[roleID]
		if managed := role.at("ManagedPolicyArns"); managed != nil {
			t.Errorf("%s: managed policies %v: their rights are not ours to say", f, managed)
		}
		logID, _ := target(t, fn.at("LoggingConfig.LogGroup"))
		for _, st := range statements(t, tpl, roleID) {
			for _, res := range st.resources {
				id, rest := target(t, res)
				on := strings.TrimPrefix(rest, "/")
				switch {
				case id == logID && rest == "":
					on = "its log"
				case id == leader && rest == "":
					on = "leader"
				case id != "" && rest == "":
					on = map[string]string{"AWS::S3::Bucket": "bucket", "AWS::DynamoDB::Table": "table"}[tpl.Resources[id].Type]
				case id != "" && tpl.Resources[id].Type != "AWS::S3::Bucket":
					t.Errorf("%s: a right on %v", f, res)
				}
				for _, action := range st.actions {
					out = append(out, line(f, on, action))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

type policyStatement struct {
	actions   []string
	resources []any
}

// statements lists what a role's inline and attached policies say. Only Allow, and no conditions.
func statements(t *testing.T, tpl *template, role string) []policyStatement {
	t.Helper()
	docs, _ := tpl.Resources[role].at("Policies").([]any)
	for _, p := range tpl.all("AWS::IAM::Policy") {
		for _, r := range p.at("Roles").([]any) {
			if id, _ := target(t, r); id == role {
				docs = append(docs, p.Properties)
			}
		}
	}
	var out []policyStatement
	for _, doc := range docs {
		for _, st := range at(doc, "PolicyDocument.Statement").([]any) {
			if at(st, "Effect") != "Allow" || at(st, "Condition") != nil || at(st, "NotAction") != nil || at(st, "NotResource") != nil {
				t.Errorf("%s: a statement of a form that this test does not know: %v", role, st)
			}
			resources, ok := at(st, "Resource").([]any)
			if !ok {
				resources = []any{at(st, "Resource")}
			}
			out = append(out, policyStatement{texts(at(st, "Action")), resources})
		}
	}
	return out
}

// documented reads the table of rights in docs/aws.md: | function | on | actions |.
func documented(t *testing.T) []string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/aws.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(produce|consume|leader|compactor)` \\| ([^|]+) \\| ([^|]+) \\|")
	code := regexp.MustCompile("`([^`]+)`")
	var out []string
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		for _, action := range code.FindAllStringSubmatch(m[3], -1) {
			out = append(out, line(spillway.Function(m[1]), strings.Trim(m[2], "`"), action[1]))
		}
	}
	slices.Sort(out)
	return out
}

func testRights(t *testing.T, tpl *template) {
	got, doc := granted(t, tpl), documented(t)
	for _, each := range got {
		if !slices.Contains(doc, each) {
			t.Errorf("the template allows %q, docs/aws.md does not", each)
		}
	}
	for _, each := range doc {
		if !slices.Contains(got, each) {
			t.Errorf("docs/aws.md allows %q, the template does not", each)
		}
	}
	// What must not come in by a change of both.
	for _, each := range got {
		f, _, _ := strings.Cut(each, " ")
		switch {
		case strings.HasSuffix(each, "*") || strings.Contains(each, " * "):
			t.Errorf("%q: a wildcard", each)
		case f == "produce" && strings.Contains(each, ":Delete"):
			t.Errorf("%q: produce deletes nothing", each)
		case f == "consume" && strings.Contains(each, "s3:") && !strings.Contains(each, "s3:GetObject") && !strings.Contains(each, "s3:ListBucket"):
			t.Errorf("%q: consume writes no objects", each)
		case f == "leader" && strings.Contains(each, "s3:"):
			t.Errorf("%q: the leader needs no bytes", each)
		}
	}
}

// testWildcards looks at every policy there is, not only the functions'.
func testWildcards(t *testing.T, tpl *template) {
	known := []string{"/batches/*", "/uploads/*", "/segments/*"}
	for _, role := range tpl.all("AWS::IAM::Role") {
		if at(role.Properties, "AssumeRolePolicyDocument.Statement.0.Principal.Service") == nil {
			t.Errorf("%s can be assumed by others than a service", role.ID)
		}
		for _, st := range statements(t, tpl, role.ID) {
			for _, res := range st.resources {
				if _, rest := target(t, res); strings.Contains(rest, "*") && !slices.Contains(known, rest) {
					t.Errorf("%s: resource %v", role.ID, res)
				}
			}
			for _, action := range st.actions {
				if strings.Contains(action, "*") {
					t.Errorf("%s: action %s", role.ID, action)
				}
			}
		}
	}
	// A bucket policy may only take away; calls of functions are allowed for one API and schedule.
	for _, p := range tpl.all("AWS::S3::BucketPolicy") {
		for _, st := range p.at("PolicyDocument.Statement").([]any) {
			if at(st, "Effect") != "Deny" {
				t.Errorf("%s: %v", p.ID, st)
			}
		}
	}
	api := tpl.one(t, "AWS::ApiGatewayV2::Api", "Api").ID
	for _, p := range tpl.all("AWS::Lambda::Permission") {
		if id, rest := target(t, p.at("SourceArn")); id != api || !strings.HasSuffix(rest, "/*/*/*") {
			t.Errorf("%s: source %v", p.ID, p.at("SourceArn"))
		}
		want(t, p, map[string]any{"Principal": "apigateway.amazonaws.com", "Action": "lambda:InvokeFunction"})
	}
}

func TestRightsAreOnlyOfKnownResources(t *testing.T) {
	known := map[string]bool{"table": true, "bucket": true, "leader": true, "batches/*": true, "uploads/*": true, "segments/*": true}
	for _, f := range spillway.Functions() {
		seen := make(map[string]bool)
		for _, r := range spillway.Rights(f) {
			if !known[r.On] || seen[r.On] {
				t.Errorf("%s: %q is unknown, or there twice; known: %v", f, r.On, slices.Sorted(maps.Keys(known)))
			}
			seen[r.On] = true
		}
	}
}
