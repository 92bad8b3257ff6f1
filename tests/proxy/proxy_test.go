package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"
)

// echo is a server that answers each line with it.
func echo(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for lines := bufio.NewScanner(c); lines.Scan(); {
					if _, err := fmt.Fprintln(c, lines.Text()); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

// talk is a connection through a proxy.
type talk struct {
	net.Conn
	lines *bufio.Scanner
}

func dial(t *testing.T, p *Proxy) *talk {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &talk{c, bufio.NewScanner(c)}
}

func (c *talk) say(t *testing.T, text string) {
	t.Helper()
	if _, err := fmt.Fprintln(c, text); err != nil {
		t.Fatal(err)
	}
}

// hear waits for a line; "" if the connection ended or nothing came.
func (c *talk) hear(t *testing.T, within time.Duration) (string, error) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	if c.lines.Scan() {
		return c.lines.Text(), nil
	}
	return "", c.lines.Err()
}

func TestPass(t *testing.T) {
	c := dial(t, New(t, echo(t)))
	for _, text := range []string{"one", "two"} {
		c.say(t, text)
		if got, err := c.hear(t, 10*time.Second); got != text {
			t.Fatalf("heard %q, %v", got, err)
		}
	}
}

// TestHold: what one way holds arrives when it is let go.
func TestHold(t *testing.T) {
	for _, way := range []Way{ToServer, ToClient} {
		p := New(t, echo(t))
		c := dial(t, p)
		c.say(t, "before")
		if got, err := c.hear(t, 10*time.Second); got != "before" {
			t.Fatalf("heard %q, %v", got, err)
		}
		p.Hold(way)
		c.say(t, "held")
		if got, err := c.hear(t, 100*time.Millisecond); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("way %d is held, and %q came, %v", way, got, err)
		}
		p.Heal()
		c.lines = bufio.NewScanner(c) // the old one has given up
		if got, err := c.hear(t, 10*time.Second); got != "held" {
			t.Fatalf("way %d: heard %q, %v", way, got, err)
		}
	}
}

// TestCut: connections end, new ones too, and after it they last.
func TestCut(t *testing.T) {
	p := New(t, echo(t))
	old := dial(t, p)
	old.say(t, "before")
	if got, err := old.hear(t, 10*time.Second); got != "before" {
		t.Fatalf("heard %q, %v", got, err)
	}
	p.Cut()
	if got, err := old.hear(t, 10*time.Second); got != "" || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a cut connection lasts: %q, %v", got, err)
	}
	if got, err := dial(t, p).hear(t, 10*time.Second); got != "" || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection lasts: %q, %v", got, err)
	}
	p.Heal()
	c := dial(t, p)
	c.say(t, "after")
	if got, err := c.hear(t, 10*time.Second); got != "after" {
		t.Errorf("heard %q, %v", got, err)
	}
}
