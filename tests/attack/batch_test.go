package attack

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/pkg/batch"
	"github.com/spillway-mq/spillway/pkg/httpapi/wire"
	"github.com/spillway-mq/spillway/pkg/queue"
)

func encoded(t *testing.T, codec batch.Codec, bodies ...[]byte) []byte {
	t.Helper()
	e := batch.NewEncoder(batch.Options{Codec: codec})
	for i, body := range bodies {
		key := fmt.Appendf(nil, "key-%d", i)
		headers, err := batch.MakeHeaders(map[string]string{"kind": "attack"})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Add(&batch.Record{Slot: queue.SlotOf(key), Key: key, Headers: headers, Body: body, TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	out, err := e.Finish(nil, [batch.NonceSize]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFlippedBits: a batch with any bit wrong, cut or extended is refused, by call and by reference,
// and hurts nothing that comes after it.
func TestFlippedBits(t *testing.T) {
	s := start(t)
	s.must("PUT", "/v1/topics/bits", nil, nil)
	s.must("PUT", "/v1/topics/bits/subscriptions/all", nil, nil)
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
		whole := encoded(t, codec, []byte(secret), bytes.Repeat([]byte(secret), 20), nil)
		var bad [][]byte
		for i := range whole {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << (i % 8)
			bad = append(bad, flipped, whole[:i])
		}
		bad = append(bad, append(bytes.Clone(whole), 0), append(bytes.Clone(whole), whole...))
		accepted := 0
		for i, b := range bad {
			status, data := s.send("POST", "/v1/topics/bits/messages", wire.MediaTypeBatch, b)
			if status == http.StatusOK {
				accepted++
				t.Logf("%v: %d accepted: %s", codec, i, data)
			}
		}
		// The nonce names the batch and means nothing else.
		t.Logf("%v: %d of %d accepted", codec, accepted, len(bad))
		if status, data := s.send("POST", "/v1/topics/bits/messages", wire.MediaTypeBatch, whole); status != http.StatusOK {
			t.Fatalf("the whole batch: %d %s", status, data)
		}
	}
	var got wire.MessageList
	s.must("POST", "/v1/topics/bits/subscriptions/all/claims", map[string]any{"max_messages": 1000}, &got)
	for _, m := range got.Messages {
		if m.Error != nil {
			t.Errorf("%s: %v", m.ID, m.Error)
		}
	}
}

// upload puts an object and gives its name.
func (s *target) upload(topic string, data []byte) string {
	s.t.Helper()
	var out wire.UploadsAnswer
	s.must("POST", "/v1/topics/"+topic+"/uploads", map[string]any{"objects": []any{map[string]any{"size": len(data)}}}, &out)
	if status, answer := s.send(out.Uploads[0].Method, out.Uploads[0].URL, "", data); status != http.StatusCreated {
		s.t.Fatalf("upload: %d %s", status, answer)
	}
	return out.Uploads[0].Object
}

// TestFlippedBitsByReference: of an uploaded batch the server reads the index only, so a wrong bit
// there is refused; one in a body keeps back
// the messages whose bodies it spoils, and no others.
func TestFlippedBitsByReference(t *testing.T) {
	s := start(t)
	for _, codec := range []batch.Codec{batch.CodecNone, batch.CodecZstd} {
		topic := "flipped-" + codec.String()
		s.must("PUT", "/v1/topics/"+topic, nil, nil)
		s.must("PUT", "/v1/topics/"+topic+"/subscriptions/all", nil, nil)
		whole := encoded(t, codec, []byte(secret), bytes.Repeat([]byte(secret), 20), nil)
		header, err := batch.ParseHeader(whole)
		if err != nil {
			t.Fatal(err)
		}
		var bad [][]byte
		for i := range whole {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << (i % 8)
			bad = append(bad, flipped)
		}
		bad = append(bad, whole[:len(whole)-1], append(bytes.Clone(whole), 0), whole[:header.PrefixLen()], whole[:1], nil)
		accepted := 0
		for i, b := range bad {
			reference := map[string]any{"object": s.upload(topic, b), "format": "batch"}
			var out wire.ProduceAnswer
			s.must("POST", "/v1/topics/"+topic+"/references", map[string]any{"references": []any{reference}}, &out)
			inBodies := i >= header.PrefixLen() && i < len(whole)
			switch r := out.Results[0]; {
			case r.Error == nil && !inBodies:
				t.Errorf("%s: %d is accepted", codec, i)
			case r.Error != nil && r.Error.Code != queue.CodeObjectInvalid:
				t.Errorf("%s: %d: %v", codec, i, r.Error)
			case r.Error == nil:
				accepted += len(out.Results)
			}
		}
		got := 0
		for {
			var page wire.MessageList
			s.must("POST", "/v1/topics/"+topic+"/subscriptions/all/claims", map[string]any{"max_messages": 1000}, &page)
			if len(page.Messages) == 0 {
				break
			}
			got += len(page.Messages)
		}
		var st wire.Subscription
		s.must("GET", "/v1/topics/"+topic+"/subscriptions/all", nil, &st)
		if got == 0 || st.Status.Delayed == 0 || got+int(st.Status.Delayed) != accepted {
			t.Errorf("%s: of %d messages %d came and %d are kept back", codec, accepted, got, st.Status.Delayed)
		}
	}
}
