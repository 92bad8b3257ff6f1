//go:build !race

package batch_test

const raceDetector = false
