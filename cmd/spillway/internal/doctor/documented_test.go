package doctor_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
)

// awsDoc is docs/aws.md, which tests of infra hold against what is deployed: so it ties this package to that.
func awsDoc(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("../../../../docs/aws.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

func section(t *testing.T, doc, title string) string {
	t.Helper()
	_, rest, ok := strings.Cut(doc, "\n## "+title+"\n")
	if !ok {
		t.Fatalf("docs/aws.md has no section %q", title)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

var quoted = regexp.MustCompile("`([^`]+)`")

func TestDocumentedRights(t *testing.T) {
	t.Parallel()
	var documented, known []string
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]+) \\| (.+) \\|$")
	for _, m := range row.FindAllStringSubmatch(section(t, awsDoc(t), "What each function may do"), -1) {
		on := strings.Trim(m[2], "`")
		for _, action := range quoted.FindAllStringSubmatch(m[3], -1) {
			documented = append(documented, m[1]+" "+on+" "+action[1])
		}
	}
	for _, fn := range doctor.All() {
		for _, r := range doctor.ExpectedOf(fn).Rights {
			for _, action := range r.Actions {
				known = append(known, string(fn)+" "+r.On+" "+action)
			}
		}
	}
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("docs/aws.md lists\n%s\nthe code\n%s", strings.Join(documented, "\n"), strings.Join(known, "\n"))
	}
}

func TestDocumentedAlarms(t *testing.T) {
	t.Parallel()
	var documented []string
	for _, line := range strings.Split(section(t, awsDoc(t), "Alarms"), "\n") {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
				documented = append(documented, m[1])
			}
		}
	}
	known := doctor.Alarms()
	slices.Sort(documented)
	slices.Sort(known)
	if !slices.Equal(documented, known) {
		t.Errorf("docs/aws.md lists %v, the code %v", documented, known)
	}
}

func TestDocumentedTimes(t *testing.T) {
	t.Parallel()
	text := section(t, awsDoc(t), "What is deployed")
	for _, fn := range doctor.All() {
		if want := fmt.Sprintf("%d s", int(doctor.ExpectedOf(fn).Timeout/time.Second)); !strings.Contains(text, want) {
			t.Errorf("%s: docs/aws.md does not say %q", fn, want)
		}
	}
	for fn, words := range map[doctor.Function]string{doctor.Leader: "`leader` every minute", doctor.Compactor: "`compactor` every five"} {
		if rate := doctor.ExpectedOf(fn).Rate; !strings.Contains(text, words) || !strings.HasPrefix(rate, "rate(") {
			t.Errorf("%s: %s, and docs/aws.md does not say %q", fn, rate, words)
		}
	}
}
