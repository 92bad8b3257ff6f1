package cli

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/demo"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
)

// TestShellQuote asks a shell.
func TestShellQuote(t *testing.T) {
	for _, s := range []string{"plain", "", "a b", "it's", "$HOME", "a\nb", "*", "~", "`x`", `\`, "http://127.0.0.1:80"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+shellQuote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q comes back as %q, %v", s, out, err)
		}
	}
}

func TestPrintable(t *testing.T) {
	if got := bodyCell([]byte("a\x1b[31m\nb")); got != "a·[31m·b" {
		t.Errorf("a body can speak to the terminal: %q", got)
	}
	if got := bodyCell([]byte{0xff, 0xfe}); !strings.Contains(got, "not text") {
		t.Errorf("%q", got)
	}
	if got := bodyCell(bytes.Repeat([]byte("é"), 500)); len([]rune(got)) != shownBody {
		t.Errorf("%d characters", len([]rune(got)))
	}
}

func TestConfigure(t *testing.T) {
	env := map[string]string{envEndpoint: "http://from.env:1/", envToken: " secret\n"}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	g := globals{output: outputJSON, timeout: units.NewDuration(time.Second)}
	c, err := configure(g, lookup)
	if err != nil || c != (config{endpoint: "http://from.env:1", auth: authToken, token: "secret", json: true, timeout: time.Second}) {
		t.Errorf("%+v, %v", c, err)
	}
	g.endpoint = "http://from.flag:2"
	if c, err := configure(g, lookup); err != nil || c.endpoint != g.endpoint {
		t.Errorf("%+v, %v: a flag wins", c, err)
	}
	env[envToken] = "two words"
	if _, err := configure(g, lookup); err == nil || strings.Contains(err.Error(), "two words") {
		t.Errorf("%v: a bad token is an error that does not tell it", err)
	}
}

func TestParsePosition(t *testing.T) {
	for _, s := range []string{"earliest", "latest", "2h", "90", "2026-01-31T12:00:00Z"} {
		if p, err := parsePosition("--start", s); err != nil || p.Word == "" && p.Time == 0 {
			t.Errorf("%q: %+v, %v", s, p, err)
		}
	}
	for _, s := range []string{"", "soon", "-1h", "2026-01-31", "100000d"} {
		if p, err := parsePosition("--start", s); err == nil {
			t.Errorf("%q: %+v", s, p)
		}
	}
}

func TestDemoViewDrawsOverItself(t *testing.T) {
	var out bytes.Buffer
	v := &demoView{w: &out, redraw: true}
	v.show(demo.State{Elapsed: time.Second, Wanted: 10, Produced: 5, Flooding: true})
	first := out.String()
	out.Reset()
	v.show(demo.State{Elapsed: 2 * time.Second, Wanted: 10, Produced: 10, Consumed: 10})
	second := out.String()
	if strings.Contains(first, "A\x1b") || !strings.HasPrefix(second, "\x1b[5A") || strings.Count(second, "\n") != 5 {
		t.Errorf("first %q\nsecond %q", first, second)
	}
	if !strings.Contains(second, strings.Repeat("█", 50)) {
		t.Errorf("the bar is not full: %q", second)
	}
}

// TestPrintDiagnosis: what many findings have in common is said once, and nothing speaks to the terminal.
func TestPrintDiagnosis(t *testing.T) {
	var out bytes.Buffer
	a := &app{Program: Program{Stdout: &out}}
	err := a.printDiagnosis(&diagnosis{OK: 1, Fail: 1, Unknown: 2, Findings: []doctor.Finding{
		{Check: "caller", Status: doctor.OK, Subject: "s", Message: "you"},
		{Check: "table", Status: doctor.Unknown, Message: "not looked at", Fix: "name it"},
		{Check: "bucket", Status: doctor.Unknown, Message: "not looked at", Fix: "name it"},
		{Check: "api", Status: doctor.Fail, Subject: "url", Message: "says \x1b[1m", Fix: "look"},
	}})
	want := []string{"ok caller you", "unknown table not looked at", "unknown bucket not looked at", "fix: name it", "fail api url: says ·[1m", "fix: look", "1 ok, 0 to mind, 1 failed, 2 unknown"}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%s\nwant %q", err, &out, want)
	}
}
