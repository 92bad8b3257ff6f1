//go:build !unix

package server

// maxOpenFiles is how many files the process may have open; 0 if that is not known.
func maxOpenFiles() int { return 0 }
