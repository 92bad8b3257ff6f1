package httpapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/httpapi"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// impatient runs a server that gives callers up soon, and opens a connection to it.
func impatient(t *testing.T, f *fakes) net.Conn {
	t.Helper()
	d := f.deps()
	d.Patience = 200 * time.Millisecond
	s := httptest.NewServer(httpapi.New(d))
	t.Cleanup(s.Close)
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestStalledBody: a body that stops, or that trickles, does not hold a goroutine for ever.
func TestStalledBody(t *testing.T) {
	for name, path := range map[string]string{
		"read": "/v1/topics/orders/messages", "not read": "/v1/nothing",
	} {
		for _, trickles := range []bool{false, true} {
			conn := impatient(t, new(fakes))
			begin := time.Now()
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{", path)
			stop := make(chan struct{})
			if trickles {
				go func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(20 * time.Millisecond):
							_, _ = conn.Write([]byte(" "))
						}
					}
				}()
			}
			answer, _ := io.ReadAll(conn) // a reset is as good an end
			close(stop)
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("%s, trickles %v: held for %v", name, trickles, took)
			}
			if strings.HasPrefix(string(answer), "HTTP/1.1 5") {
				t.Errorf("%s: %s", name, answer)
			}
		}
	}
}

// TestUntakenClaim: messages whose claimer does not take the answer go back, long before the claim ends.
func TestUntakenClaim(t *testing.T) {
	f := &fakes{released: make(chan []queue.Receipt, 1)}
	f.deliveries = []consume.Delivery{deliver(encoded(t, batch.CodecNone, batch.Record{Body: noise(8 << 20)}), 1)}
	conn := impatient(t, f)
	_, _ = fmt.Fprint(conn, "POST /v1/topics/orders/subscriptions/billing/claims HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-f.released:
	case <-time.After(10 * time.Second):
		t.Error("the messages stay with a caller that does not take them")
	}
}

// TestDeadlinesEndWithTheirCall: a connection serves calls that come after the patience of the ones
// before, long polls included.
func TestDeadlinesEndWithTheirCall(t *testing.T) {
	f := new(fakes)
	f.onClaim = func(context.Context) { time.Sleep(500 * time.Millisecond) } // longer than the patience
	conn := impatient(t, f)
	in := bufio.NewReader(conn)
	for i := range 3 {
		for path, body := range map[string]string{
			"/v1/topics/orders/messages":                     `{"messages":[{}]}`,
			"/v1/topics/orders/subscriptions/billing/claims": `{"wait":5}`,
		} {
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, len(body))
			if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("%d %s: %q, %v", i, path, line, err)
			}
			_, _ = in.ReadString('\n')
			_, _ = io.WriteString(conn, body)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%d %s: %v", i, path, err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%d %s: %d", i, path, resp.StatusCode)
			}
			time.Sleep(300 * time.Millisecond)
		}
	}
}
