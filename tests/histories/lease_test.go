//go:build unix

package histories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/meta/boltmeta"
	"github.com/spillway-mq/spillway/tests/process"
)

// What the environment says to a test's binary that is to be a holder: the store's file, the process' number and the seed.
const (
	envStore  = "SPILLWAY_HOLD_STORE"
	envNumber = "SPILLWAY_HOLD_NUMBER"
	envSeed   = "SPILLWAY_SEED"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(envStore); file != "" {
		if err := holdStore(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// holdStore holds leases in the embedded store until the process is killed.
func holdStore(file string) error {
	number, err := strconv.Atoi(os.Getenv(envNumber))
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		return err
	}
	store, err := boltmeta.Open(file, boltmeta.Options{})
	if err != nil {
		return err
	}
	err = Hold(context.Background(), store, os.Stdout, Keepers{Count: 4, Process: number, Seed: seed, TTL: leaseTTL})
	return errors.Join(err, store.Close())
}

// leaseTTL is short, so that it ends often.
const leaseTTL = 150 * time.Millisecond

// TestLeases kills and stops a process whose keepers take a lease in the embedded store, for as many rounds as
// TestServer.
func TestLeases(t *testing.T) {
	t.Parallel()
	seed := process.Number(t, envSeed, int(time.Now().UnixNano()&0xffffff))
	rounds := process.Number(t, "SPILLWAY_HISTORY_ROUNDS", 6)
	t.Logf("%s=%d", envSeed, seed)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "meta.db")
	var all []*Holder
	for i := range rounds {
		cmd := exec.CommandContext(t.Context(), self)
		cmd.Env = append(os.Environ(), envStore+"="+file, fmt.Sprintf("%s=%d", envNumber, i), fmt.Sprintf("%s=%d", envSeed, seed))
		h := StartHolder(t, cmd)
		time.Sleep(round)
		if i%2 == 1 {
			h.Signal(t, syscall.SIGSTOP)
			time.Sleep(2 * leaseTTL)
			h.Signal(t, syscall.SIGCONT)
			time.Sleep(round / 3)
		}
		h.Kill()
		all = append(all, h)
	}
	JudgeLeases(t, Leases(all...), history.Options{Dir: drawings, Label: fmt.Sprintf("leases-%d", seed)}, 2*rounds)
}
