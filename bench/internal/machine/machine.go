// Package machine says what the runs were made on, in words that could be anyone's: no path, no name of a host.
package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// probeTime is how long the disk is probed, probeBytes what each append has.
const (
	probeTime  = time.Second
	probeBytes = 4096
)

// Machine is what the runs were made on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	// Syncs is how many appends of 4 KB the disk made durable in a second, one after another.
	Syncs float64 `json:"syncs_per_second"`
	// Load is the average number of processes that ran or waited, over the minute before.
	Load   float64 `json:"load"`
	Date   string  `json:"date"`
	Commit string  `json:"commit"`
}

// Look describes this machine, and probes the disk below a folder.
func Look(dir, commit string, now time.Time) (m Machine, err error) {
	m = Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Date: now.UTC().Format(time.DateOnly), Commit: commit}
	if m.CPU, err = field("/proc/cpuinfo", "model name"); err != nil {
		return m, err
	}
	memory, err := field("/proc/meminfo", "MemTotal")
	if err != nil {
		return m, err
	}
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(memory, " kB"), 10, 64)
	if err != nil {
		return m, fmt.Errorf("read /proc/meminfo: %w", err)
	}
	m.Memory = kilobytes << 10
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return m, err
	}
	// What follows the version is a build's own name.
	release, _, _ := strings.Cut(strings.TrimSpace(string(kernel)), "-")
	m.Kernel = "Linux " + release
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	first, _, _ := strings.Cut(string(load), " ")
	if m.Load, err = strconv.ParseFloat(first, 64); err != nil {
		return m, fmt.Errorf("read /proc/loadavg: %w", err)
	}
	m.Syncs, err = syncs(dir)
	return m, err
}

// field gives a line's value in a file of lines "name: value"; empty if there is none.
func field(path, name string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// syncs appends and syncs for a while.
func syncs(dir string) (rate float64, err error) {
	path := filepath.Join(dir, "probe")
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	block := make([]byte, probeBytes)
	began, n := time.Now(), 0
	for time.Since(began) < probeTime {
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, &fs.PathError{Op: "fdatasync", Path: path, Err: err}
		}
		n++
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
