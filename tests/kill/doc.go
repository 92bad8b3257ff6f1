// Package kill is the durability loop: it loads a server, ends it with kill -9 at random moments,
// starts it again on the same data, and holds what it finds against a record kept outside.
//
// The load and the record are those of tests/load.
//
// Non-goals: power loss (the embedded drivers' own tests cut unsynced bytes), speed.
package kill
