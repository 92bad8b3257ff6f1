//go:build !linux

package boltmeta

import bolt "go.etcd.io/bbolt"

// forget does nothing: the system decides what of a mapped file counts as the process's memory.
func forget(*bolt.DB) error { return nil }
