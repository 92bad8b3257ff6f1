//go:build race

package batch_test

// raceDetector: sync.Pool, which the zstd library uses, drops items at random under it, so counts of
// allocations mean nothing.
const raceDetector = true
