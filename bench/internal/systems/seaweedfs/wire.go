package seaweedfs

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of weed/pb/mq_broker.proto that are used, written by hand: the generated package brings most of
// SeaweedFS with it, down to its image library.

// frame is an encoded message.
type frame []byte

// codec sends frames as they are.
type codec struct{}

// Name is the encoding's on the wire.
func (codec) Name() string { return "proto" }

// Marshal gives a frame's bytes.
func (codec) Marshal(v any) ([]byte, error) { return *v.(*frame), nil }

// Unmarshal keeps a message's bytes as a frame.
func (codec) Unmarshal(data []byte, v any) error {
	*v.(*frame) = append(frame(nil), data...)
	return nil
}

// field adds a field of bytes, a string or a message.
func (f frame) field(n protowire.Number, v []byte) frame {
	return protowire.AppendBytes(protowire.AppendTag(f, n, protowire.BytesType), v)
}

// number adds a field of an integer.
func (f frame) number(n protowire.Number, v int64) frame {
	return protowire.AppendVarint(protowire.AppendTag(f, n, protowire.VarintType), uint64(v))
}

// fields hands each field to see: bytes of it, or its integer.
func (f frame) fields(see func(n protowire.Number, bytes []byte, number int64)) error {
	for rest := []byte(f); len(rest) > 0; {
		n, kind, size := protowire.ConsumeTag(rest)
		if size < 0 {
			return fmt.Errorf("decode an answer: %w", protowire.ParseError(size))
		}
		rest = rest[size:]
		switch kind {
		case protowire.BytesType:
			var bytes []byte
			if bytes, size = protowire.ConsumeBytes(rest); size >= 0 {
				see(n, bytes, 0)
			}
		case protowire.VarintType:
			var number uint64
			if number, size = protowire.ConsumeVarint(rest); size >= 0 {
				see(n, nil, int64(number))
			}
		default:
			size = protowire.ConsumeFieldValue(n, kind, rest)
		}
		if size < 0 {
			return fmt.Errorf("decode an answer: %w", protowire.ParseError(size))
		}
		rest = rest[size:]
	}
	return nil
}

// get gives the bytes of one field; nil if it is not there.
func (f frame) get(n protowire.Number) (found []byte, err error) {
	err = f.fields(func(at protowire.Number, bytes []byte, _ int64) {
		if at == n {
			found = bytes
		}
	})
	return found, err
}

func topic(name string) frame {
	return frame(nil).field(1, []byte("bench")).field(2, []byte(name))
}

// assignment is a partition, as the broker writes it, and who leads it.
type assignment struct {
	partition, leader []byte
}

// configure asks for a topic, and assignments reads the answer.
func configure(name string, partitions int) frame {
	return frame(nil).field(1, topic(name)).number(2, int64(partitions))
}

func assignments(answer frame) (all []assignment, err error) {
	var parts [][]byte
	if err := answer.fields(func(n protowire.Number, bytes []byte, _ int64) {
		if n == 2 {
			parts = append(parts, bytes)
		}
	}); err != nil {
		return nil, err
	}
	for _, part := range parts {
		var a assignment
		if a.partition, err = frame(part).get(1); err != nil {
			return nil, err
		}
		if a.leader, err = frame(part).get(2); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// publishTo begins a stream of publishing, data is one message of it.
func publishTo(name string, partition []byte) frame {
	init := frame(nil).field(1, topic(name)).field(2, partition).number(3, 1).field(5, []byte("bench"))
	return frame(nil).field(1, init)
}

func data(key, value []byte, nanoseconds int64) frame {
	return frame(nil).field(2, frame(nil).field(1, key).field(2, value).number(3, nanoseconds))
}

// published reads an acknowledgement.
func published(answer frame) error {
	text, err := answer.get(2)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		return fmt.Errorf("publish: %s", text)
	}
	return nil
}

// earliest is OffsetType RESET_TO_EARLIEST.
const earliest = 5

// subscribeTo begins a stream of receiving, ack is one acknowledgement of it.
func subscribeTo(name, group, consumer string, partition []byte, window int) frame {
	init := frame(nil).field(1, []byte(group)).field(2, []byte(consumer)).field(3, []byte("bench")).field(4, topic(name)).
		field(5, frame(nil).field(1, partition)).number(6, earliest).number(12, int64(window))
	return frame(nil).field(1, init)
}

func ack(m message) frame {
	return frame(nil).field(2, frame(nil).number(1, m.nanoseconds).field(2, m.key))
}

// message is one that is received.
type message struct {
	key, value  []byte
	nanoseconds int64
}

// received reads what a stream of receiving brings; ok is false if it is no message.
func received(answer frame) (m message, ok bool, err error) {
	control, err := answer.get(1)
	if err != nil {
		return m, false, err
	}
	if text, err := frame(control).get(1); err != nil || len(text) > 0 {
		return m, false, fmt.Errorf("subscribe: %s: %w", text, err)
	}
	content, err := answer.get(2)
	if err != nil || content == nil {
		return m, false, err
	}
	err = frame(content).fields(func(n protowire.Number, bytes []byte, number int64) {
		switch n {
		case 1:
			m.key = bytes
		case 2:
			m.value = bytes
		case 3:
			m.nanoseconds = number
		}
	})
	return m, err == nil && len(m.key) > 0, err
}
