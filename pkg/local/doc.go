// Package local assembles the whole of Spillway in one process on embedded storage: drivers, use
// cases, the HTTP API and what runs in the background.
//
// Vocabulary: a data folder holds everything (objects/, meta.db, url.key); the backstop is the
// promotion of delayed messages that nobody's claim has promoted.
//
// Invariants: one process per data folder; nothing listens beyond the loopback addresses unless a
// token guards the door, or the caller says that someone else does; nothing acknowledged depends on
// Close being called.
//
// Non-goals: command lines and environments (cmd/spillway), several processes on one folder.
package local
