// Command spillway-sim runs the simulator: the real use cases on simulated stores, clocks and a network that a seed
// decides. The same seed makes the same run, byte for byte.
//
//	go run ./cmd/spillway-sim --seed 7 --history
//	go run ./cmd/spillway-sim --seeds 1000
//
// It ends with 1 if a promise was broken, after the seed, a run that is shrunk to what is needed for it, and how to repeat it.
package main

import (
	"flag"
	"os"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/pkg/sim"
)

// main runs the program as a test of itself: a bubble of testing/synctest, in which a run lives, opens for tests only.
func main() {
	testing.Init()
	if err := flag.CommandLine.Parse(nil); err != nil { // of testing; the program's are cobra's
		panic(err)
	}
	every := func(string, string) (bool, error) { return true, nil }
	testing.Main(every, []testing.InternalTest{{Name: "spillway-sim", F: program}}, nil, nil)
}

func program(t *testing.T) {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, func(opts sim.Options) (res *sim.Result) {
		// One processor numbers the goroutines of an op in the order in which they were started.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		synctest.Test(t, func(*testing.T) { res = sim.Run(opts) })
		return res
	}))
}
