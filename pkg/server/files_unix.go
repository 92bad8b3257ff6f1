//go:build unix

package server

import "golang.org/x/sys/unix"

// maxOpenFiles is how many files the process may have open; 0 if that is not known.
func maxOpenFiles() int {
	const plenty = 1 << 20
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	// The field's type differs between systems, and so does what stands for no limit.
	if cur := uint64(limit.Cur); cur < plenty { //nolint:unconvert // signed on some systems
		return int(cur) // #nosec G115 -- below plenty
	}
	return plenty
}
