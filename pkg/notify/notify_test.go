package notify_test

import (
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/pkg/notify"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestSignalWakesAllOfItsTopicOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := notify.NewHub()
		woken := make(map[string]int)
		done := make(chan string)
		for _, topic := range []string{"a", "a", "b"} {
			ch, leave := h.Wait(queue.TopicID("topic-" + topic))
			go func() {
				defer leave()
				select {
				case <-ch:
					done <- topic
				case <-h.Closed():
					done <- "closed"
				}
			}()
		}
		h.Signal("topic-a")
		for range 2 {
			woken[<-done]++
		}
		synctest.Wait()
		select {
		case who := <-done:
			t.Errorf("%s woke without a signal", who)
		default:
		}
		if woken["a"] != 2 {
			t.Errorf("woken: %v, want both who wait for a", woken)
		}
		h.Close()
		h.Close()
		if who := <-done; who != "closed" {
			t.Errorf("after Close the waiter woke as %s", who)
		}
	})
}

// TestNothingIsMissed: a signal between Wait and the receive is seen, one before Wait is not.
func TestNothingIsMissed(t *testing.T) {
	h := notify.NewHub()
	h.Signal("t")
	ch, leave := h.Wait("t")
	defer leave()
	select {
	case <-ch:
		t.Error("woken by a signal from before the wait")
	default:
	}
	h.Signal("t")
	select {
	case <-ch:
	default:
		t.Error("a signal after Wait was missed")
	}
	leave()
	leave()
}
