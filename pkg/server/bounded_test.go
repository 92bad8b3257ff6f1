package server

import (
	"errors"
	"net"
	"testing"
	"time"
)

// TestBoundedConnections: past the bound connections wait, and come in as others leave.
func TestBoundedConnections(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newBounded(inner, 2)
	accepted := make(chan net.Conn)
	ended := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- conn
		}
	}()
	for range 4 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Fatal("a third connection of two")
	case <-time.After(50 * time.Millisecond):
	}
	for range 2 { // closing twice frees one slot
		_ = first.Close()
	}
	third := <-accepted
	select {
	case <-accepted:
		t.Fatal("a fourth connection while two are open")
	case <-time.After(50 * time.Millisecond):
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("accept waits on after the close")
	}
	_, _ = second.Close(), third.Close()
	if n := maxOpenFiles(); n < 0 {
		t.Error(n)
	}
}
