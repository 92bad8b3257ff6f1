package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCounts(t *testing.T) {
	tests := map[string]struct {
		streams []string
		want    counts
	}{
		"nothing": {want: counts{}},
		"a pass, a failure and a skip": {
			streams: []string{`
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"fail","Package":"p"}`},
			want: counts{passed: 1, failed: 1, skipped: 1},
		},
		"a test that holds subtests does not count beside them": {
			streams: []string{`
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"run","Package":"p","Test":"TestA/two"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"fail","Package":"p","Test":"TestA/two"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`},
			want: counts{passed: 1, failed: 1},
		},
		"a test that fails by itself counts, whatever its subtests did": {
			streams: []string{`
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"fail","Package":"p"}`},
			want: counts{passed: 1, failed: 1},
		},
		"a skipped subtest counts though the test that holds it passed": {
			streams: []string{`
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"skip","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p"}`},
			want: counts{skipped: 1},
		},
		"a package that does not compile counts as one failure": {
			streams: []string{`
{"ImportPath":"p [p.test]","Action":"build-output","Output":"p.go:1: no\n"}
{"ImportPath":"p [p.test]","Action":"build-fail"}
{"Action":"start","Package":"p"}
{"Action":"output","Package":"p","Output":"FAIL\tp [build failed]\n"}
{"Action":"fail","Package":"p","FailedBuild":"p [p.test]"}`},
			want: counts{failed: 1},
		},
		"a package without tests counts as nothing": {
			streams: []string{`{"Action":"skip","Package":"p"}`},
			want:    counts{},
		},
		"a test that never ended counts as failed": {
			streams: []string{`
{"Action":"run","Package":"p","Test":"TestA"}`},
			want: counts{failed: 1},
		},
		"a test in two streams counts once, with its worst result": {
			streams: []string{
				`{"Action":"fail","Package":"p","Test":"TestA"}`,
				`{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestB"}`,
			},
			want: counts{passed: 1, failed: 1},
		},
		"other lines are no results": {
			streams: []string{"make: hello\n{not json}\n" + `{"Action":"pass","Package":"p","Test":"TestA"}`},
			want:    counts{passed: 1},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSuite()
			for _, stream := range tc.streams {
				if err := s.read(strings.NewReader(stream), io.Discard); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.counts(); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestRunReports(t *testing.T) {
	tests := map[string]struct {
		stream    string
		addFailed int
		wantOK    bool
		wantEnd   string
		wantIn    []string
	}{
		"all well": {
			stream:  `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"pass","Package":"p","Elapsed":1.25}`,
			wantOK:  true,
			wantEnd: "packages: 1 passed, 0 failed, 0 skipped\n",
			wantIn:  []string{"ok    p  1.2s\n", "\ntests in 1 packages: "},
		},
		"no test ran": {
			stream:  `{"Action":"skip","Package":"p"}`,
			wantEnd: "packages: 0 passed, 0 failed, 0 skipped\n",
		},
		"a failure shows its output, a skip its reason": {
			stream: `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:7: lost a message\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:9: no clock\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: chatter\n"}
{"Action":"pass","Package":"p","Test":"TestC"}`,
			wantEnd: "packages: 1 passed, 1 failed, 1 skipped\n",
			wantIn: []string{
				"--- failed: p TestA\n    a_test.go:7: lost a message\n",
				"--- skipped: p TestB\n    b_test.go:9: no clock\n",
			},
		},
		"a failed build shows the compiler's words": {
			stream: `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: undefined: x\n"}
{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			wantEnd: "packages: 0 passed, 1 failed, 0 skipped\n",
			wantIn:  []string{"--- failed: p\np.go:1: undefined: x\n", "FAIL  p  0.0s\n"},
		},
		"failures from elsewhere are added": {
			stream:    `{"Action":"pass","Package":"p","Test":"TestA"}`,
			addFailed: 2,
			wantEnd:   "packages: 1 passed, 2 failed, 0 skipped\n",
		},
		"a line that is not JSON is passed through": {
			stream:  "make: *** [test] Error 1\n" + `{"Action":"pass","Package":"p","Test":"TestA"}`,
			wantOK:  true,
			wantEnd: "packages: 1 passed, 0 failed, 0 skipped\n",
			wantIn:  []string{"make: *** [test] Error 1\n"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "stream.json")
			if err := os.WriteFile(file, []byte(tc.stream), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			ok, err := run(&out, false, tc.addFailed, []string{file})
			if err != nil {
				t.Fatal(err)
			}
			if ok != tc.wantOK {
				t.Errorf("ok = %v, want %v", ok, tc.wantOK)
			}
			if !strings.HasSuffix(out.String(), tc.wantEnd) {
				t.Errorf("does not end with %q:\n%s", tc.wantEnd, out.String())
			}
			for _, want := range tc.wantIn {
				if !strings.Contains(out.String(), want) {
					t.Errorf("does not say %q:\n%s", want, out.String())
				}
			}
			if strings.Contains(out.String(), "chatter") {
				t.Error("prints the output of a test that passed")
			}
		})
	}
}

func TestTotalIsOneLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stream.json")
	stream := "noise\n" + `{"Action":"fail","Package":"p","Test":"TestA"}` + "\n" + `{"Action":"fail","Package":"p"}`
	if err := os.WriteFile(file, []byte(stream), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	ok, err := run(&out, true, 0, []string{file})
	if err != nil {
		t.Fatal(err)
	}
	if want := "0 passed, 1 failed, 0 skipped\n"; ok || out.String() != want {
		t.Errorf("got %v, %q; want false, %q", ok, out.String(), want)
	}
}
