// Package server is one process of Spillway over whatever stores it is given: the listener, the HTTP API, the
// metrics, the background work, and the way to stop all that in order.
//
// Vocabulary: the door is what decides who may come in; draining is the time between the word to stop and the
// end of the last call; a fleet is any number of processes on the same stores.
//
// Invariants:
//   - Nothing listens beyond the loopback addresses unless a token guards the door, or the caller says that
//     someone else does.
//   - /readyz turns red before anything else ends, and the listener stays open for the drain delay after that,
//     so that who looks at it sends nothing any more when the listener closes.
//   - Nothing acknowledged depends on Close being called.
//
// Non-goals: opening stores (pkg/local, pkg/fleet), command lines and environments (cmd/spillway).
package server
