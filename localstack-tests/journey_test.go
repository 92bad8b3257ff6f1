//go:build localstack

package localstack

import (
	"encoding/base64"
	"net/http"
	"testing"
	"time"
)

// TestDeployed is one test because its parts share what takes long: two deployments.
func TestDeployed(t *testing.T) {
	w := newWorkshop(t)
	one := w.deploy(t, "SpillwayOne", hasty)
	one.hasten(t, one.stack, "Leader", "rate(1 minute)")
	one.hasten(t, one.stack, "Compactor", "rate(5 minutes)")
	for name, part := range map[string]func(*testing.T, *deployment){
		"journey":          journey,
		"idempotency":      idempotency,
		"delayed":          delayed,
		"dead letter":      deadLetter,
		"upload":           upload,
		"large claim":      largeClaim,
		"sizes":            sizes,
		"refused calls":    refusedCalls,
		"odd calls":        oddCalls,
		"the SDK":          sdk,
		"limits":           limits,
		"every call":       everyCall,
		"the API document": document,
		"bodies":           bodies,
	} {
		t.Run(name, func(t *testing.T) { part(t, one) })
	}
	p := newProgram(t, w, one)
	for name, part := range map[string]func(*testing.T, *program){"formats": formats, "commands": commands, "refusals": refusals} {
		t.Run("the program, "+name, func(t *testing.T) { part(t, p) })
	}
	// One after another: each changes a function's settings for its time.
	t.Run("a store that refuses", func(t *testing.T) { storeRefuses(t, one) })
	t.Run("killed in mid-call", func(t *testing.T) { killedInMidCall(t, one) })
	t.Run("consumer killed", func(t *testing.T) { consumerKilled(t, one) })
	t.Run("wrong settings", func(t *testing.T) { wrongSettings(t, one) })
	t.Run("schedules", func(t *testing.T) { schedules(t, one) })
	t.Run("compacted", func(t *testing.T) { compacted(t, one) })
	t.Run("scaled", func(t *testing.T) { scaled(t, one) })
	t.Run("the doctor", func(t *testing.T) { doctor(t, p, one) })
	var two *deployment
	t.Run("side by side", func(t *testing.T) { two = sideBySide(t, w, one) })
	t.Run("destroyed", func(t *testing.T) {
		if two == nil {
			t.Fatal("there is no second deployment")
		}
		destroyed(t, w, two)
	})
	t.Run("redeployed", func(t *testing.T) { redeployed(t, w, one) })
}

// message is a message as claims and peeks show it.
type message struct {
	ID         string            `json:"id"`
	Key        string            `json:"key"`
	Body       string            `json:"body"`
	BodyBase64 string            `json:"body_base64"`
	Headers    map[string]string `json:"headers"`
	Attempt    int               `json:"attempt"`
	Receipt    string            `json:"receipt"`
	Reference  *struct {
		URL      string            `json:"url"`
		Headers  map[string]string `json:"headers"`
		Offset   int               `json:"offset"`
		Length   int               `json:"length"`
		Checksum string            `json:"checksum"`
		Format   string            `json:"format"`
	} `json:"reference"`
}

type result struct {
	ID        string `json:"id"`
	DelayedID string `json:"delayed_id"`
	OK        bool   `json:"ok"`
	Error     *struct {
		Code string `json:"code"`
	} `json:"error"`
}

type results struct {
	Results []result `json:"results"`
}

type object = map[string]any

// topic makes a topic and a subscription "s" on it.
func (d *deployment) topic(t *testing.T, name string, config, subscription object) {
	t.Helper()
	d.call(t, "PUT", "/v1/topics/"+name, config).into(t, &object{})
	d.call(t, "PUT", "/v1/topics/"+name+"/subscriptions/s", subscription).into(t, &object{})
}

// produce sends messages, each of which must be accepted.
func (d *deployment) produce(t *testing.T, topic string, messages ...object) []result {
	t.Helper()
	var out results
	d.call(t, "POST", "/v1/topics/"+topic+"/messages", object{"messages": messages}).into(t, &out)
	if len(out.Results) != len(messages) {
		t.Fatalf("%d results for %d messages", len(out.Results), len(messages))
	}
	for _, r := range out.Results {
		if r.Error != nil || r.ID == "" && r.DelayedID == "" {
			t.Fatalf("produce: %+v", r)
		}
	}
	return out.Results
}

func (d *deployment) claim(t *testing.T, topic string, in object) []message {
	t.Helper()
	var out struct {
		Messages []message `json:"messages"`
	}
	d.call(t, "POST", "/v1/topics/"+topic+"/subscriptions/s/claims", in).into(t, &out)
	return out.Messages
}

// settle acks or releases; the answer is per receipt.
func (d *deployment) settle(t *testing.T, topic, how string, in object) []result {
	t.Helper()
	var out results
	d.call(t, "POST", "/v1/topics/"+topic+"/subscriptions/s/"+how, in).into(t, &out)
	return out.Results
}

// ack acks what was claimed, and must be told so.
func (d *deployment) ack(t *testing.T, topic string, messages ...message) {
	t.Helper()
	for _, m := range messages {
		if r := d.settle(t, topic, "ack", object{"receipts": []string{m.Receipt}}); len(r) != 1 || !r[0].OK {
			t.Errorf("ack of %s: %+v", m.ID, r)
		}
	}
}

func journey(t *testing.T, d *deployment) {
	d.topic(t, "orders", object{}, object{})
	binary := []byte{0, 0xff, 0xfe, '"', 0x80}
	sent := d.produce(t, "orders",
		object{"key": "c42", "body": "héllo ☃", "headers": object{"kind": "new"}},
		object{"body_base64": base64.StdEncoding.EncodeToString(binary)})
	got := d.claim(t, "orders", object{"max_messages": 10, "wait": 5})
	if len(got) != 2 {
		t.Fatalf("claimed %+v", got)
	}
	if got[0].ID != sent[0].ID { // without an order either may come first
		got[0], got[1] = got[1], got[0]
	}
	if m := got[0]; m.ID != sent[0].ID || m.Key != "c42" || m.Body != "héllo ☃" || m.Headers["kind"] != "new" || m.Attempt != 1 || m.Receipt == "" {
		t.Errorf("the first message: %+v", m)
	}
	if m := got[1]; m.ID != sent[1].ID || m.BodyBase64 != base64.StdEncoding.EncodeToString(binary) {
		t.Errorf("the second message: %+v", m)
	}
	if again := d.claim(t, "orders", object{"max_messages": 10}); len(again) != 0 {
		t.Errorf("claimed twice: %+v", again)
	}
	var extended results
	d.call(t, "POST", "/v1/topics/orders/subscriptions/s/extend", object{"receipts": []string{got[0].Receipt}, "visibility_timeout": 60}).into(t, &extended)
	d.ack(t, "orders", got[0])
	mixed := d.settle(t, "orders", "ack", object{"receipts": []string{got[1].Receipt, "nonsense"}})
	if len(mixed) != 2 || !mixed[0].OK || mixed[1].Error == nil {
		t.Errorf("one good and one bad receipt: %+v", mixed)
	}
	var peeked struct {
		Messages []message `json:"messages"`
	}
	d.call(t, "GET", "/v1/topics/orders/messages?limit=10", nil).into(t, &peeked)
	if len(peeked.Messages) != 2 {
		t.Errorf("a peek sees %+v", peeked.Messages)
	}
	// A long poll is answered when a message comes, and empty when none does.
	began := time.Now()
	if late := d.claim(t, "orders", object{"wait": 2}); len(late) != 0 {
		t.Errorf("claimed %+v after all was acked", late)
	}
	if waited := time.Since(began); waited < 1500*time.Millisecond || waited > 20*time.Second {
		t.Errorf("a poll of 2 s took %v", waited)
	}
}

func idempotency(t *testing.T, d *deployment) {
	d.topic(t, "once", object{}, object{})
	send := func(body string) answer {
		return d.call(t, "POST", "/v1/topics/once/messages", object{"messages": []object{{"body": body}}}, "Idempotency-Key", "k-1")
	}
	var first, second results
	send("a").into(t, &first)
	send("a").into(t, &second)
	if len(first.Results) != 1 || len(second.Results) != 1 || first.Results[0].ID != second.Results[0].ID {
		t.Errorf("one key and body, two answers: %+v, %+v", first, second)
	}
	if a := send("b"); a.status != http.StatusUnprocessableEntity || a.code() != "idempotency_mismatch" {
		t.Errorf("the key with another body: %v", a)
	}
	sequenced := object{"messages": []object{{"body": "s"}}, "producer": object{"id": "p-1", "sequence": 1}}
	d.call(t, "POST", "/v1/topics/once/messages", sequenced).into(t, &first)
	d.call(t, "POST", "/v1/topics/once/messages", sequenced).into(t, &second)
	if first.Results[0].ID != second.Results[0].ID {
		t.Errorf("one sequence, two answers: %+v, %+v", first, second)
	}
	if got := d.claim(t, "once", object{"max_messages": 10}); len(got) != 2 {
		t.Errorf("two messages were sent, %d claimed: %+v", len(got), got)
	}
}

func delayed(t *testing.T, d *deployment) {
	d.topic(t, "later", object{"default_delay": 6}, object{})
	sent := d.produce(t, "later", object{"body": "due"}, object{"body": "cancelled"})
	if sent[0].DelayedID == "" {
		t.Fatalf("not delayed: %+v", sent)
	}
	if got := d.claim(t, "later", object{"max_messages": 10}); len(got) != 0 {
		t.Errorf("claimed before it was due: %+v", got)
	}
	if a := d.call(t, "DELETE", "/v1/topics/later/delayed/"+sent[1].DelayedID, nil); a.status/100 != 2 {
		t.Errorf("cancel: %v", a)
	}
	// The claim promotes: the schedule is too slow for this.
	got := d.claim(t, "later", object{"max_messages": 10, "wait": 15})
	if len(got) != 1 || got[0].Body != "due" {
		t.Fatalf("claimed %+v", got)
	}
	d.ack(t, "later", got...)
}

func deadLetter(t *testing.T, d *deployment) {
	d.topic(t, "dead", object{}, object{})
	d.topic(t, "risky", object{}, object{"max_deliveries": 2, "dead_letter_topic": "dead"})
	d.produce(t, "risky", object{"key": "k", "body": "poison", "headers": object{"h": "1"}})
	for attempt := 1; attempt <= 2; attempt++ {
		got := d.claim(t, "risky", object{"wait": 5})
		if len(got) != 1 || got[0].Attempt != attempt {
			t.Fatalf("attempt %d: %+v", attempt, got)
		}
		if r := d.settle(t, "risky", "release", object{"receipts": []string{got[0].Receipt}, "delay": 0, "reason": "no good"}); !r[0].OK {
			t.Fatalf("release: %+v", r)
		}
	}
	if got := d.claim(t, "risky", object{}); len(got) != 0 {
		t.Errorf("claimed a third time: %+v", got)
	}
	got := d.claim(t, "dead", object{"wait": 5})
	if len(got) != 1 || got[0].Body != "poison" || got[0].Key != "k" || got[0].Headers["h"] != "1" {
		t.Fatalf("the dead letter: %+v", got)
	}
	d.ack(t, "dead", got...)
}
