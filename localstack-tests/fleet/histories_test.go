//go:build localstack

package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/spillway-mq/spillway/pkg/history"
	"github.com/spillway-mq/spillway/pkg/meta/dynamometa"
	"github.com/spillway-mq/spillway/tests/histories"
	"github.com/spillway-mq/spillway/tests/proxy"
)

// What the environment says to a test's binary that is to be a holder: the table, the process' number and the seed.
const (
	envTable  = "SPILLWAY_HOLD_TABLE"
	envNumber = "SPILLWAY_HOLD_NUMBER"
	envSeed   = "SPILLWAY_SEED"
)

// leaseTTL is short, so that it ends often on an emulator that takes its time.
const leaseTTL = 2 * time.Second

func TestMain(m *testing.M) {
	if table := os.Getenv(envTable); table != "" {
		if err := holdTable(table); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// holdTable holds leases in a table until the process is killed.
func holdTable(table string) error {
	number, err := strconv.Atoi(os.Getenv(envNumber))
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64)
	if err != nil {
		return err
	}
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	store := dynamometa.New(dynamodb.NewFromConfig(cfg), table, dynamometa.Options{})
	return histories.Hold(ctx, store, os.Stdout, histories.Keepers{Count: 2, Process: number, Seed: seed, TTL: leaseTTL})
}

// behind is a process, server or holder, with a proxy between it and its stores.
type behind struct {
	way  *proxy.Proxy
	stop func(syscall.Signal)
	kill func()
}

// scene is a fleet of servers, and one of holders.
type scene struct {
	*works
	t        *testing.T
	seed     uint64
	emulator *url.URL
	made     int
	// servers and holders are those that run; past are holders that ended.
	servers, holders []*behind
	past             []*histories.Holder

	mu   sync.Mutex // guards urls
	urls []string   // of the servers
}

// throughProxy is an environment whose stores are behind a proxy of their own.
func (s *scene) throughProxy(environment []string) (*proxy.Proxy, []string) {
	p := proxy.New(s.t, s.emulator.Host)
	at := *s.emulator
	at.Host = p.Addr
	return p, append(environment[:len(environment):len(environment)], "AWS_ENDPOINT_URL="+at.String(), "AWS_ENDPOINT_URL_S3="+at.String())
}

// server runs one more server, in the place n of the fleet.
func (s *scene) server(n int) {
	way, environment := s.throughProxy(s.environment)
	p := s.startAs(s.t, environment)
	s.servers[n] = &behind{way: way, kill: p.kill, stop: func(sig syscall.Signal) { s.signal(p.cmd, sig) }}
	for client, until := newClient(s.t), time.Now().Add(patience); !p.ready(s.t.Context(), client); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			s.t.Fatalf("%s is not ready", p.name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.urls[n] = p.url
}

// holder runs one more holder, in the place n.
func (s *scene) holder(n int) {
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	way, environment := s.throughProxy(os.Environ())
	cmd := exec.CommandContext(s.t.Context(), self)
	environment = append(environment, envTable+"="+s.table, fmt.Sprintf("%s=%d", envNumber, s.made), fmt.Sprintf("%s=%d", envSeed, s.seed))
	cmd.Env = environment
	s.made++
	h := histories.StartHolder(s.t, cmd)
	s.past = append(s.past, h)
	s.holders[n] = &behind{way: way, kill: h.Kill, stop: func(sig syscall.Signal) { s.signal(cmd, sig) }}
}

func (s *scene) signal(cmd *exec.Cmd, sig syscall.Signal) {
	s.t.Helper()
	if err := cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// endpoint is where a client's calls go: to whichever process has its place now.
func (s *scene) endpoint(client int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.urls[client%len(s.urls)]
}

// disturb does one thing to a process for a while; again starts another in its place, if it was killed.
func (s *scene) disturb(rng *rand.Rand, list []*behind, again func(n int)) {
	n := rng.IntN(len(list))
	b := list[n]
	switch rng.IntN(5) {
	case 0:
		b.kill()
		again(n)
	case 1:
		b.stop(syscall.SIGSTOP)
		time.Sleep(2 * leaseTTL)
		b.stop(syscall.SIGCONT)
	case 2:
		b.way.Cut()
		time.Sleep(leaseTTL)
	case 3:
		b.way.Hold(proxy.ToServer)
		time.Sleep(3 * leaseTTL / 2)
	default:
		b.way.Hold(proxy.ToClient)
		time.Sleep(3 * leaseTTL / 2)
	}
	b.way.Heal()
}

// TestHistories: three servers and two holders, each with a proxy between it and the emulator, are killed, stopped and
// cut off for half a minute, or SPILLWAY_HISTORY_SECONDS, and what clients and holders saw is held against the
// models of pkg/history. SPILLWAY_SEED decides what is done, though not when.
func TestHistories(t *testing.T) {
	seed, seconds := uint64(time.Now().UnixNano()&0xffffff), uint64(30)
	for name, to := range map[string]*uint64{envSeed: &seed, "SPILLWAY_HISTORY_SECONDS": &seconds} {
		if text := os.Getenv(name); text != "" {
			var err error
			if *to, err = strconv.ParseUint(text, 10, 64); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
	t.Logf("%s=%d", envSeed, seed)
	s := &scene{works: newWorks(t), t: t, seed: seed, servers: make([]*behind, 3), urls: make([]string, 3), holders: make([]*behind, 2)}
	var err error
	if s.emulator, err = url.Parse(os.Getenv("AWS_ENDPOINT_URL")); err != nil || !strings.Contains(s.emulator.Host, ":") {
		t.Fatalf("AWS_ENDPOINT_URL: %q has no port, %v", s.emulator, err)
	}
	for n := range s.servers {
		s.server(n)
	}
	for n := range s.holders {
		s.holder(n)
	}
	c := histories.New(histories.Options{
		Seed: seed, Endpoint: s.endpoint, Pace: 150 * time.Millisecond, Patience: 5 * time.Second, Visibility: visibility, Era: 4 * time.Second,
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute+time.Duration(seconds)*time.Second)
	defer cancel()
	c.SetUp(ctx, t, 2)
	c.Start(ctx, len(s.servers))
	rng := rand.New(rand.NewPCG(seed, 1<<32))
	for began := time.Now(); time.Since(began) < time.Duration(seconds)*time.Second; {
		if rng.IntN(3) > 0 {
			s.disturb(rng, s.servers, s.server)
		} else {
			s.disturb(rng, s.holders, s.holder)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(time.Second))))
	}
	c.Split(ctx, t)
	c.Stop()
	for _, h := range s.past {
		h.Kill()
	}
	o := history.Options{
		Tolerance: 5 * time.Millisecond, Stale: 2 * time.Second, Unsure: true,
		Dir: filepath.Join("..", "..", "out", "histories"), Label: fmt.Sprintf("fleet-%d", seed),
	}
	c.Judge(ctx, t, o, fmt.Sprintf("repeat: %s=%d make test-aws TESTFLAGS='-run TestHistories'", envSeed, seed))
	histories.JudgeLeases(t, histories.Leases(s.past...), o, 3)
}
