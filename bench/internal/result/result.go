// Package result holds what runs measured: one Run a line in a file that only grows, and their medians.
//
// Vocabulary: a round runs every peer once, in turn, so the runs of one round stand beside each other in time; a
// pair is Spillway's run and a peer's of the same round and workload.
//
// Invariants: a run that failed, lost something or could not be made is a Run, too, with its reason in Status; it
// is never left out and never counts towards a median.
package result

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// The words that Status begins with; what follows says more.
const (
	OK        = "ok"
	NoFeature = "no such feature"
	NotRun    = "not run"
	Failed    = "failed"
	// Silent: of the warm-up's messages none arrived, so a next time will hardly be better.
	Silent = Failed + ": nothing arrived"
)

// maxReason is how long a reason may be, in bytes: it stands in a table.
const maxReason = 160

// Line gives a Status: the word, and the first line of an error, without the names of folders of this machine.
func Line(word string, err error) string {
	reason, _, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n")
	reason = regexp.MustCompile(`(/[\w.@+-]+){2,}`).ReplaceAllString(strings.ReplaceAll(reason, "|", ","), "…")
	return word + ": " + strings.ToValidUTF8(reason[:min(len(reason), maxReason)], "")
}

// Run is what one run measured. Times are in seconds, memory in bytes; what a workload does not measure is 0.
type Run struct {
	Workload string  `json:"workload"`
	Peer     string  `json:"peer"`
	Round    int     `json:"round"`
	Scale    float64 `json:"scale"`
	Status   string  `json:"status"`
	Version  string  `json:"version,omitempty"`

	// Sent were acknowledged; Missing, Twice and Corrupt are of all groups together. Early came before their
	// delay was over.
	Sent    int64 `json:"sent"`
	Missing int64 `json:"missing,omitempty"`
	Twice   int64 `json:"twice,omitempty"`
	Corrupt int64 `json:"corrupt,omitempty"`
	Early   int64 `json:"early,omitempty"`

	// In is messages a second while sending, Out a second from the first send (of a backlog: from the first receive)
	// until the last acknowledged receive.
	In  float64 `json:"in,omitempty"`
	Out float64 `json:"out,omitempty"`
	// Call is of one Send. End is of one message: from when its Send was due until it was received; of a delayed
	// one, from when its delay was over.
	Call Times `json:"call,omitzero"`
	End  Times `json:"end,omitzero"`

	ServerCPU     float64 `json:"server_cpu,omitempty"`
	ClientCPU     float64 `json:"client_cpu,omitempty"`
	Peak          float64 `json:"peak,omitempty"`
	PeakAnonymous float64 `json:"peak_anonymous,omitempty"`
}

// Times are percentiles.
type Times struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// Key says which run of a plan it is.
type Key struct {
	Workload, Peer string
	Round          int
	Scale          float64
}

// Key gives the run's.
func (r *Run) Key() Key { return Key{r.Workload, r.Peer, r.Round, r.Scale} }

// Load reads a file of runs; one that is not there holds none. A last line that was cut off is dropped: its run
// is made again.
func Load(path string) ([]Run, error) { return load[Run](path) }

// LoadRows reads a file of rows, as SaveRows writes it.
func LoadRows(path string) ([]Row, error) { return load[Row](path) }

func load[T any](path string) (all []T, err error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	n := 0
	for line := range bytes.Lines(text) {
		n++
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var one T
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		all = append(all, one)
	}
	return all, nil
}

// Append adds one run to a file, in place of a last line that was cut off.
func Append(path string, r *Run) (err error) {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	whole := int64(bytes.LastIndexByte(text, '\n') + 1)
	if err := f.Truncate(whole); err != nil {
		return err
	}
	_, err = f.WriteAt(append(line, '\n'), whole)
	return err
}

// SaveRows writes a file of rows, one a line.
func SaveRows(path string, rows []Row) error {
	var text []byte
	for i := range rows {
		line, err := json.Marshal(&rows[i])
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	return os.WriteFile(path, text, 0o600)
}
