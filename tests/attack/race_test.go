package attack

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// during runs each of works again and again for as long as the attack lasts.
func during(lasts time.Duration, works ...func()) {
	end := time.Now().Add(lasts)
	var wg sync.WaitGroup
	for _, work := range works {
		wg.Go(func() {
			for time.Now().Before(end) {
				work()
			}
		})
	}
	wg.Wait()
}

// TestTopicChurn: one name is created and deleted while others produce to it, claim from it and look
// at it. Whoever creates is never told that there is no such topic; the others are told nothing worse.
func TestTopicChurn(t *testing.T) {
	s := start(t)
	const topic = "/v1/topics/churn"
	churn := func() {
		if status, data := s.json("PUT", topic, nil); status != http.StatusOK && status != http.StatusCreated {
			t.Errorf("create: %d %s", status, data)
		}
		s.json("PUT", topic+"/subscriptions/all", nil)
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		s.json("DELETE", topic, nil)
	}
	sequence := 0
	produce := func() {
		sequence++
		s.json("POST", topic+"/messages", map[string]any{
			"messages": []any{map[string]any{"body": secret}}, "producer": map[string]any{"id": "p", "sequence": sequence},
		})
	}
	consume := func() {
		_, data := s.json("POST", topic+"/subscriptions/all/claims", map[string]any{"wait": 0.05})
		var got wire.MessageList
		if json.Unmarshal(data, &got) != nil || len(got.Messages) == 0 {
			return
		}
		receipts := make([]string, len(got.Messages))
		for i, m := range got.Messages {
			receipts[i] = m.Receipt
		}
		s.json("POST", topic+"/subscriptions/all/ack", map[string]any{"receipts": receipts})
	}
	look := func() {
		for _, path := range []string{"", "/messages", "/segments", "/delayed", "/subscriptions", "/subscriptions/all"} {
			s.json("GET", topic+path, nil)
		}
	}
	during(3*time.Second, churn, churn, produce, consume, consume, look)
}

// TestEditsRacePromotion: editors change, move and cancel delayed messages while they become visible.
// What was not cancelled is delivered once, with a body that was acknowledged; what was cancelled is not.
func TestEditsRacePromotion(t *testing.T) {
	s := start(t)
	const topic, messages = "/v1/topics/race", 100
	s.must("PUT", topic, map[string]any{"default_delay": 0.2, "max_delay": 60}, nil)
	s.must("PUT", topic+"/subscriptions/all", nil, nil)
	var mu sync.Mutex // guards the rest
	ids := make([]string, messages)
	bodies := make([][]string, messages) // those that the message may have
	cancelled := make([]bool, messages)
	delivered := make([][]string, messages)
	left := func() int {
		mu.Lock()
		defer mu.Unlock()
		n := 0
		for i := range messages {
			if len(delivered[i]) == 0 && !cancelled[i] {
				n++
			}
		}
		return n
	}
	for i := range messages {
		body := strconv.Itoa(i) + " " + secret
		var out wire.ProduceAnswer
		s.must("POST", topic+"/messages", map[string]any{"messages": []any{map[string]any{"body": body, "delay": 0.1 + rand.Float64()/2}}}, &out)
		ids[i], bodies[i] = out.Results[0].DelayedID, []string{body}
	}
	edit := func() {
		i := rand.IntN(messages)
		path := topic + "/delayed/" + ids[i]
		switch rand.IntN(8) {
		case 0:
			mu.Lock()
			defer mu.Unlock()
			if status, _ := s.json("DELETE", path, nil); status == http.StatusNoContent {
				cancelled[i] = true
			}
		case 1:
			s.json("PATCH", path, map[string]any{"delay": rand.Float64()})
		default:
			body := fmt.Sprint(i, " ", rand.Int(), secret)
			mu.Lock()
			bodies[i] = append(bodies[i], body) // before the call: it may be delivered before the answer
			mu.Unlock()
			s.json("PATCH", path, map[string]any{"body": body})
		}
	}
	consume := func() {
		var got wire.MessageList
		s.must("POST", topic+"/subscriptions/all/claims", map[string]any{"wait": 0.1, "max_messages": 20}, &got)
		for _, m := range got.Messages {
			if now := queue.MillisOf(time.Now()); queue.Millis(m.VisibleAt) > now {
				t.Errorf("%s came before it was visible", m.ID)
			}
			number, _, _ := strings.Cut(*m.Body, " ")
			i, err := strconv.Atoi(number)
			if err != nil {
				t.Error(err)
				continue
			}
			mu.Lock()
			delivered[i] = append(delivered[i], *m.Body)
			mu.Unlock()
		}
	}
	during(3*time.Second, edit, edit, consume, consume)
	for deadline := time.Now().Add(10 * time.Second); left() > 0 && time.Now().Before(deadline); {
		consume()
	}
	for i := range messages {
		switch n := len(delivered[i]); {
		case cancelled[i] && n > 0:
			t.Errorf("%d was cancelled and delivered", i)
		case !cancelled[i] && n != 1:
			t.Errorf("%d was delivered %d times", i, n)
		case n == 1 && !slices.Contains(bodies[i], delivered[i][0]):
			t.Errorf("%d came with %q", i, delivered[i][0])
		}
	}
}

// TestCrowdThatLeaves: several hundred long polls go away at once. They claim nothing, and leave
// nothing behind.
func TestCrowdThatLeaves(t *testing.T) {
	s := start(t)
	s.must("PUT", "/v1/topics/crowd", nil, nil)
	s.must("PUT", "/v1/topics/crowd/subscriptions/all", nil, nil)
	before := s.goroutines()
	const crowd, body = 300, `{"wait":20}`
	conns := make([]net.Conn, crowd)
	for i := range conns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = conn
		_, _ = fmt.Fprintf(conn, "POST /v1/topics/crowd/subscriptions/all/claims HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	s.eventually("all wait", func() bool { return s.goroutines() >= before+crowd })
	for _, conn := range conns {
		_ = conn.Close()
	}
	s.eventually("all have gone", func() bool { return s.goroutines() < before+crowd/10 })
	s.must("POST", "/v1/topics/crowd/messages", map[string]any{"messages": []any{map[string]any{"body": secret}}}, nil)
	var got wire.MessageList
	s.must("POST", "/v1/topics/crowd/subscriptions/all/claims", map[string]any{"wait": 5}, &got)
	if len(got.Messages) != 1 || got.Messages[0].Attempt != 1 {
		t.Errorf("%+v", got.Messages)
	}
}

// goroutines is how many the server has, as its metrics say.
func (s *target) goroutines() int {
	s.t.Helper()
	_, data := s.send("GET", "/metrics", "", nil)
	for line := range strings.Lines(string(data)) {
		if n, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			count, err := strconv.Atoi(strings.TrimSpace(n))
			if err != nil {
				s.t.Error(err)
			}
			return count
		}
	}
	s.t.Error("the metrics do not count goroutines")
	return 0
}

// eventually waits until something is so.
func (s *target) eventually(what string, is func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("it does not come about that %s", what)
		}
	}
}
