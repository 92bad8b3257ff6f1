package local

import (
	"net"
	"net/netip"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// checkListen refuses to open an unguarded door to other machines.
func checkListen(o Options) error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return queue.Invalid("listen", nil, "must be host:port, as in %s", DefaultListen)
	}
	if isLoopback(host) || o.Token != "" || o.Insecure {
		return nil
	}
	return queue.Invalid("listen", nil,
		"%s can be reached from other machines: give a bearer token (--token-file), or say that someone else guards the door (--insecure)", o.Listen)
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
