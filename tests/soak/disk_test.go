//go:build linux

package soak

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// insideEnv says to the test binary that it runs in a mount namespace of its own.
	insideEnv = "SPILLWAY_SOAK_INSIDE"
	// mountOptions are those of the small file system.
	mountOptions = "size=%d,mode=0700"
)

// TestMain runs the tests in a mount namespace of their own, so that they can mount a small file system that nobody
// else sees and that is gone with them, whatever ends them. Root makes one at once; others, in a user namespace, if the
// system lets them.
func TestMain(m *testing.M) {
	if os.Getenv(insideEnv) != "" {
		os.Exit(m.Run())
	}
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	runtime.LockOSThread()                                // the child's life hangs on this thread's
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) // its end is this one's, by Pdeathsig
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = os.Stdin, os.Stdout, os.Stderr, attr
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "soak: no mount namespace of its own (%v)\n", err)
		os.Exit(m.Run())
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "soak: the test's process ended:", err)
	os.Exit(1)
}

// disk is where the data folder is: a file system of its own, or, where none can be mounted, a folder and a limit of
// the server's file size.
type disk struct {
	dir     string
	size    int64
	mounted bool
	// limited is the process that has the limit.
	limited int
}

// newDisk makes one of size bytes.
func newDisk(t *testing.T, size int64) *disk {
	t.Helper()
	d := &disk{dir: t.TempDir(), size: size}
	if os.Getenv(insideEnv) != "" {
		// What is mounted from here on stays in here.
		err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		if err == nil {
			err = unix.Mount("soak", d.dir, "tmpfs", 0, fmt.Sprintf(mountOptions, size))
		}
		if d.mounted = err == nil; d.mounted {
			t.Cleanup(func() { _ = unix.Unmount(d.dir, unix.MNT_DETACH) })
			return d
		}
		t.Logf("mount: %v", err)
	}
	t.Log("NO SMALL FILE SYSTEM: neither root nor a user namespace may mount one here. A limit of the process's file size stands in for the full disk")
	return d
}

func (d *disk) data() string   { return filepath.Join(d.dir, "data") }
func (d *disk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves about spare bytes; pid is the server that writes there.
func (d *disk) fill(pid int, spare int64) error {
	if !d.mounted {
		return d.limit(pid, spare)
	}
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil {
		return err
	}
	n := int64(s.Bavail)*s.Bsize - spare
	if n <= 0 {
		return nil
	}
	// Beside a writer the end may come early.
	if _, err := io.CopyN(f, zeros{}, n); err != nil && !errors.Is(err, unix.ENOSPC) {
		return err
	}
	return nil
}

// limit lets no file be written past its first spare bytes: what is in use of the metadata lies further back.
func (d *disk) limit(pid int, spare int64) error {
	if pid == 0 {
		return nil // nobody writes
	}
	d.limited = pid
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(spare), Max: unix.RLIM_INFINITY}, nil) // #nosec G115 -- a size
}

// free gives the room back.
func (d *disk) free(pid int) error {
	if d.mounted {
		return os.Remove(d.filler())
	}
	if pid == 0 || pid != d.limited {
		return nil // the limit went with its process
	}
	return unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, nil)
}

// used is how many bytes the data folder takes.
func (d *disk) used() int64 {
	var sum int64
	_ = filepath.WalkDir(d.data(), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // files come and go
		}
		if info, err := e.Info(); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				sum += stat.Blocks * 512
			}
		}
		return nil
	})
	return sum
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
