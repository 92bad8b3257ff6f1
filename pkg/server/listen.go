package server

import (
	"net"
	"net/netip"
	"sync"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// DefaultListen is where a server listens unless told otherwise.
const DefaultListen = "127.0.0.1:8080"

// Door is where a server listens, and whom it lets in.
type Door struct {
	// Listen is host and port; port 0 takes a free one. An address that is not a loopback one is refused
	// without Token or Insecure.
	Listen string
	// Token, if not empty, must come as bearer token with every call but /healthz.
	Token string
	// Insecure says that someone else guards the door.
	Insecure bool
}

// Check refuses, as Invalid, to open an unguarded door to other machines. Start does it, too; it is for those who
// have something to open before.
func (d Door) Check() error {
	host, _, err := net.SplitHostPort(d.Listen)
	if err != nil {
		return queue.Invalid("listen", nil, "must be host:port, as in %s", DefaultListen)
	}
	if isLoopback(host) || d.Token != "" || d.Insecure {
		return nil
	}
	return queue.Invalid("listen", nil,
		"%s can be reached from other machines: give a bearer token (--token-file), or say that someone else guards the door (--insecure)", d.Listen)
}

// isLoopback reports whether only this machine can reach host. An empty host means all addresses; of
// names only localhost is known to be safe, whatever others resolve to today.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

// reservedFiles are kept from connections, so that a crowd of clients cannot keep the stores from
// opening theirs.
const reservedFiles = 256

// boundConnections lets as many connections in at once as leave the process files to work with; the
// others wait in the system's queue.
func boundConnections(l net.Listener) net.Listener {
	files := maxOpenFiles()
	if files == 0 {
		return l
	}
	return newBounded(l, max(1, files-min(reservedFiles, files/2)))
}

type bounded struct {
	net.Listener
	slots  chan struct{} // holds a token for each open connection
	closed chan struct{}
	once   sync.Once
}

func newBounded(l net.Listener, n int) *bounded {
	return &bounded{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.slots <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.slots
		return nil, err
	}
	return &boundedConn{Conn: conn, leave: sync.OnceFunc(func() { <-b.slots })}, nil
}

// Close implements net.Listener.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

type boundedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
