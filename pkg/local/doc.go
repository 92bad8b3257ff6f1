// Package local runs the whole of Spillway in one process on embedded storage: it opens a data folder and
// has pkg/server serve it.
//
// Vocabulary: a data folder holds everything (objects/, meta.db, url.key).
//
// Invariants: one process per data folder; a folder that has lost a part is refused, not begun anew.
//
// Non-goals: command lines and environments (cmd/spillway), several processes on one folder.
package local
