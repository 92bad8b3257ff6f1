// Package contract holds the four built functions against the Runtime API of Lambda, as AWS's own emulator of it
// (aws-lambda-rie) speaks it: one call at a time, which is all that it can do.
//
// The tests are built with the tag rie alone, since they want the emulator: `make test-rie` installs it. The stores
// are functions/internal/cloudtest's, on loopback.
//
// Non-goals: what the functions do with a call, which the tests of functions/internal/host and pkg/httpapi have.
package contract
