// Package process runs a peer's server as a process of its own and reads what it uses.
//
// Invariants: a process is in the process group of the program that started it, so that whoever kills a run by its
// group kills its servers, too. Figures come from /proc, so this is for Linux.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// startTime is what it may take until it is ready: a JVM on a busy machine.
	startTime = 60 * time.Second
	// logShown is how much of the log's end an error shows, in bytes.
	logShown = 2000
	// ticks of /proc's CPU times in a second: USER_HZ, which is 100 on every Linux that Go runs on.
	ticks = 100
)

// Process is a server that runs.
type Process struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

// Options describe a process.
type Options struct {
	// Name names the log in Dir.
	Name, Dir string
	Path      string
	Args      []string
	// Env is added to this process's.
	Env []string
}

// Start runs a program.
func Start(o Options) (*Process, error) {
	p := &Process{log: filepath.Join(o.Dir, o.Name+".log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(o.Path, o.Args...) //nolint:gosec,noctx // a peer of the list; Stop ends it
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = o.Dir, log, log
	p.cmd.Env = append(os.Environ(), o.Env...)
	if err := p.cmd.Start(); errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("%s is not installed (tools/peers): %w", filepath.Base(o.Path), err)
	} else if err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	go func() {
		defer close(p.done)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

// Pid is its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Stop kills it and waits: its data is thrown away, and an orderly end takes some of them 10 seconds.
func (p *Process) Stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Await asks until ready gives no error. The error says how the log ends.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		one, stop := context.WithTimeout(ctx, 5*time.Second)
		err := ready(one)
		stop()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %w; its log ends: %s", errors.Join(p.err, err), p.logEnd())
		case <-ctx.Done():
			return fmt.Errorf("not ready after %s: %w; its log ends: %s", startTime, err, p.logEnd())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (p *Process) logEnd() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-logShown):]))
}

// Logged is a check for Await: the process has logged a text.
func (p *Process) Logged(text string) error {
	log, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	if !bytes.Contains(log, []byte(text)) {
		return fmt.Errorf("%q is not in its log", text)
	}
	return nil
}

// Listening is a check for Await: something accepts connections at address.
func Listening(address string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// FreePorts gives n ports of the loopback interface that nothing listens on.
func FreePorts(ctx context.Context, n int) ([]int, error) {
	var ports []int
	// All are held until all are found, so that they differ.
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range n {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Use is what processes have used.
type Use struct {
	CPU time.Duration
	// Peak is the largest resident memory so far, files mapped into memory included; Anonymous is resident now
	// without those. In bytes.
	Peak, Anonymous int64
}

// Used adds up what processes have used; one's children that have ended are included.
func Used(pids []int) (Use, error) {
	var sum Use
	for _, pid := range pids {
		one, err := used(pid)
		if err != nil {
			return Use{}, err
		}
		sum.CPU += one.CPU
		sum.Peak += one.Peak
		sum.Anonymous += one.Anonymous
	}
	return sum, nil
}

func used(pid int) (u Use, err error) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	// The program's name, in parentheses, may hold anything; user and system time, of itself and of
	// its children, are the 14th to 17th fields, and the first after the name is the 3rd.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 15 {
		return u, fmt.Errorf("read %s/stat: %d fields", dir, len(fields))
	}
	for _, field := range fields[11:15] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return u, fmt.Errorf("read %s/stat: %w", dir, err)
		}
		u.CPU += time.Duration(n) * time.Second / ticks
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		target := map[string]*int64{"VmHWM": &u.Peak, "RssAnon": &u.Anonymous}[name]
		if target == nil {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.Fields(value)[0], 10, 64)
		if err != nil {
			return u, fmt.Errorf("read %s/status: %w", dir, err)
		}
		*target = kilobytes << 10
	}
	return u, nil
}
