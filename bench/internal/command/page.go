package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spillway-mq/spillway/bench/internal/machine"
	"github.com/spillway-mq/spillway/bench/internal/page"
	"github.com/spillway-mq/spillway/bench/internal/result"
	"github.com/spillway-mq/spillway/bench/internal/systems"
	"github.com/spillway-mq/spillway/bench/internal/workload"
)

// look describes the machine before the first run. Runs of two commits would not be one series, so they are refused.
func (o *options) look() error {
	path := filepath.Join(o.out, machineFile)
	known, err := readMachine(path)
	if errors.Is(err, fs.ErrNotExist) {
		m, err := machine.Look(o.out, o.commit, time.Now())
		if err != nil {
			return err
		}
		return writeMachine(path, m)
	} else if err != nil {
		return err
	}
	if known.Commit != o.commit {
		return fmt.Errorf("%s has runs of commit %s, and this is %s: move or remove that folder to begin a new series", o.out, known.Commit, o.commit)
	}
	return nil
}

func readMachine(path string) (m machine.Machine, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	err = json.Unmarshal(text, &m)
	return m, err
}

func writeMachine(path string, m machine.Machine) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}

// page writes the page: from the runs, whose medians it keeps beside it, or again from those.
func (o *options) page() error {
	kept := filepath.Join(o.docs, filepath.Dir(mediansFile))
	if !o.kept {
		if err := o.keep(kept); err != nil {
			return err
		}
	}
	rows, err := result.LoadRows(filepath.Join(o.docs, mediansFile))
	if err != nil {
		return err
	}
	m, err := readMachine(filepath.Join(kept, machineFile))
	if err != nil {
		return err
	}
	for name, text := range pages(m, rows) {
		if err := os.WriteFile(filepath.Join(o.docs, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// keep writes the runs' medians, and what they were made on, into a folder.
func (o *options) keep(dir string) error {
	runs, err := result.Load(filepath.Join(o.out, runsFile))
	if err != nil {
		return err
	}
	rows := result.Medians(runs, systems.All()[0].Name, o.scale)
	if len(rows) == 0 {
		return fmt.Errorf("%s has no runs of scale %g", o.out, o.scale)
	}
	m, err := readMachine(filepath.Join(o.out, machineFile))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := result.SaveRows(filepath.Join(o.docs, mediansFile), rows); err != nil {
		return err
	}
	return writeMachine(filepath.Join(dir, machineFile), m)
}

// pages are the page and its plots, by name below docs.
func pages(m machine.Machine, rows []result.Row) map[string]string {
	p := page.Page{Machine: m, Rows: rows, Peers: systems.All(), Workloads: workload.All()}
	return map[string]string{pageFile: p.Markdown(), page.RatesPlot: p.Rates(), page.TimesPlot: p.Times()}
}
