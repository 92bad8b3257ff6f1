// Package proxy stands between a client and a server on the loopback interface, and cuts them apart.
//
// Vocabulary: a way is one direction of all connections; a way that is held takes bytes and passes them on when it is
// let go, as TCP does after a partition, so that a request may arrive long after its client gave up; a cut
// closes what is open, and whatever is opened while it lasts.
//
// Invariants: bytes of a connection keep their order and none is lost but by a cut; a proxy ends with its test.
//
// Non-goals: what is in the bytes (functions/internal/cloudtest and localstack-tests fail single requests), speed.
package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Way is one direction.
type Way int

// The ways.
const (
	ToServer Way = iota
	ToClient
	ways
)

// Proxy passes connections to one server on. Safe for concurrent use.
type Proxy struct {
	// Addr is where it listens.
	Addr string

	target string
	accept net.Listener
	ends   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	change *sync.Cond // of what follows
	held   [ways]bool
	cut    bool
	over   bool
	open   map[net.Conn]bool
}

// New makes a proxy to target, an address. It ends with the test.
func New(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, accept: l, open: make(map[net.Conn]bool)}
	p.change = sync.NewCond(&p.mu)
	p.ends.Go(p.serve)
	t.Cleanup(func() {
		p.set(func() { p.over = true })
		_ = l.Close()
		p.ends.Wait()
	})
	return p
}

// Hold stops ways until Heal.
func (p *Proxy) Hold(which ...Way) {
	p.set(func() {
		for _, w := range which {
			p.held[w] = true
		}
	})
}

// Cut closes all connections, and each new one, until Heal.
func (p *Proxy) Cut() { p.set(func() { p.cut = true }) }

// Heal lets everything pass again; what was held comes first.
func (p *Proxy) Heal() { p.set(func() { p.cut, p.held = false, [ways]bool{} }) }

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	if p.cut || p.over {
		for c := range p.open {
			_ = c.Close() // it may be closed already
		}
	}
	p.change.Broadcast()
}

func (p *Proxy) serve() {
	for {
		client, err := p.accept.Accept()
		if err != nil {
			return // the test is over
		}
		p.ends.Go(func() { p.join(client) })
	}
}

// join passes one connection on until both of its ways have ended.
func (p *Proxy) join(client net.Conn) {
	server, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.open[client], p.open[server] = true, true
	refused := p.cut || p.over
	p.mu.Unlock()
	if !refused {
		var both sync.WaitGroup
		both.Go(func() { p.pass(ToServer, server, client) })
		both.Go(func() { p.pass(ToClient, client, server) })
		both.Wait()
	}
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mu.Unlock()
	_, _ = client.Close(), server.Close() // they may be closed already
}

// pass carries the bytes of one way, and its end. What was read before the way was held, or while it is, goes on
// when it is let go, though its sender may have left.
func (p *Proxy) pass(way Way, to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if !p.wait(way) {
			return
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				_ = from.Close()
				return
			}
		}
		if err != nil {
			if c, ok := to.(*net.TCPConn); ok && errors.Is(err, io.EOF) {
				_ = c.CloseWrite() // it may be closed already
				return
			}
			_ = to.Close()
			return
		}
	}
}

// wait waits until a way is let go; false if the connection is cut instead.
func (p *Proxy) wait(way Way) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.held[way] && !p.cut && !p.over {
		p.change.Wait()
	}
	return !p.cut && !p.over
}
