// Package strictjson reads JSON from strangers into structs, and takes nothing for granted: where
// encoding/json is lenient, and two readers of one text could understand two things, it refuses.
//
// Refused are: fields that the struct does not have (names match byte for byte), a name twice in one
// object, text that is not UTF-8 or escapes half a surrogate pair, nesting and arrays beyond a limit,
// anything after the value. An error names the field as a caller would: "messages[3].ttl".
//
// Vocabulary: a path is the way from the top of the text to a field; "request" stands for the top.
//
// Invariants: every error is a *queue.Error of KindInvalid or KindTooLarge; memory is bounded by a
// small multiple of the input; a slice of bytes is filled with text, as a string is; null means that a field is absent; a number that no type can hold is given as the
// nearest one that it can, so that the check of the field's own limit, which the caller makes, names
// that limit.
//
// Non-goals: writing JSON; interfaces, embedded structs and the options of struct tags.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Limits bound what a Decoder takes.
type Limits struct {
	// Depth is the most that arrays and objects may be nested.
	Depth int
	// Items is the most entries that one array or one object may have.
	Items int
}

// Decoder reads JSON. Safe for concurrent use.
type Decoder struct {
	limits Limits
	fields sync.Map // reflect.Type of a struct: map[string]int, the field's number by its JSON name
}

// New makes a Decoder.
func New(limits Limits) *Decoder { return &Decoder{limits: limits} }

// Decode reads the one value that data holds into dst, a pointer. It keeps nothing of data. After an
// error dst may be filled in part.
func (d *Decoder) Decode(data []byte, dst any) error {
	s := state{scanner: scanner{data: data, limits: d.limits}, decoder: d}
	s.space()
	if err := s.value(reflect.ValueOf(dst).Elem()); err != nil {
		return err
	}
	s.space()
	if s.pos < len(s.data) {
		return s.syntax("there is more after the end of the JSON value")
	}
	return nil
}

func (d *Decoder) fieldsOf(t reflect.Type) map[string]int {
	if known, ok := d.fields.Load(t); ok {
		return known.(map[string]int)
	}
	fields := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			fields[name] = i
		}
	}
	d.fields.Store(t, fields)
	return fields
}

type state struct {
	scanner
	decoder *Decoder
}

// value reads the value at pos into v.
func (s *state) value(v reflect.Value) error {
	if s.literal("null") {
		return nil
	}
	if u, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		start := s.pos
		if err := s.skip(); err != nil {
			return err
		}
		if err := u.UnmarshalJSON(s.data[start:s.pos]); err != nil {
			return s.relabel(err)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return s.value(v.Elem())
	case reflect.Struct:
		return s.structure(v)
	case reflect.Map:
		return s.mapping(v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return s.bytes(v)
		}
		return s.slice(v)
	case reflect.String:
		text, err := s.text()
		v.SetString(text)
		return err
	case reflect.Bool:
		switch {
		case s.literal("true"):
			v.SetBool(true)
		case s.literal("false"):
			v.SetBool(false)
		default:
			return s.mismatch("true or false")
		}
		return nil
	default:
		return s.number(v)
	}
}

// relabel puts the path of the value into an error of a type's own.
func (s *state) relabel(err error) error {
	text := err.Error()
	if e, ok := err.(*queue.Error); ok { //nolint:errorlint // the types here give it as it is
		if _, rest, found := strings.Cut(e.Message, ": "); found {
			text = rest
		}
	}
	return queue.Invalid(s.field(), nil, "%s", text)
}

func (s *state) structure(v reflect.Value) error {
	fields := s.decoder.fieldsOf(v.Type())
	var seen uint64 // by number of field: no struct of the API has more than 64
	return s.object(func(name []byte) error {
		i, ok := fields[string(name)]
		if !ok {
			return queue.Invalid(s.field(), nil, "is not a field that this call knows")
		}
		if seen&(1<<i) != 0 {
			return queue.Invalid(s.field(), nil, "is given twice")
		}
		seen |= 1 << i
		return s.value(v.Field(i))
	})
}

func (s *state) mapping(v reflect.Value) error {
	v.Set(reflect.MakeMap(v.Type()))
	elem := reflect.New(v.Type().Elem()).Elem()
	return s.object(func(name []byte) error {
		key := reflect.ValueOf(string(name)).Convert(v.Type().Key())
		if v.MapIndex(key).IsValid() {
			return queue.Invalid(s.field(), nil, "is given twice")
		}
		elem.SetZero()
		if err := s.entry(elem); err != nil {
			return err
		}
		v.SetMapIndex(key, elem)
		return nil
	})
}

func (s *state) slice(v reflect.Value) error {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	return s.array(func() error {
		n := v.Len()
		v.Grow(1)
		v.SetLen(n + 1)
		return s.entry(v.Index(n))
	})
}

// bytes reads text into a slice of bytes, which is never nil then.
func (s *state) bytes(v reflect.Value) error {
	b, own, err := s.raw()
	if err != nil {
		return err
	}
	if !own {
		b = append([]byte{}, b...)
	}
	v.SetBytes(b)
	return nil
}

// entry reads an entry of an array or a map. Of a field null means that it is absent; an entry is
// there, and null is no value for it unless it is a pointer.
func (s *state) entry(v reflect.Value) error {
	if v.Kind() != reflect.Pointer && bytes.HasPrefix(s.data[s.pos:], []byte("null")) {
		return queue.Invalid(s.field(), nil, "must not be null")
	}
	return s.value(v)
}

func (s *state) number(v reflect.Value) error {
	text, whole, err := s.numberText()
	if err != nil {
		return err
	}
	switch v.Kind() {
	case reflect.Float64:
		f, _ := strconv.ParseFloat(text, 64) // the text is a number; out of range gives an infinity
		v.SetFloat(max(-math.MaxFloat64, min(f, math.MaxFloat64)))
		return nil
	case reflect.Int, reflect.Int64:
		if !whole {
			return s.mismatch("a whole number")
		}
		n, _ := strconv.ParseInt(text, 10, 64) // out of range gives the nearest
		v.SetInt(n)
		return nil
	case reflect.Uint64:
		if !whole {
			return s.mismatch("a whole number")
		}
		if text[0] == '-' && strings.Trim(text, "-0") != "" {
			return queue.Invalid(s.field(), 0, "must not be negative")
		}
		n, _ := strconv.ParseUint(strings.TrimPrefix(text, "-"), 10, 64)
		v.SetUint(n)
		return nil
	}
	return &queue.Error{Op: "decode JSON", Kind: queue.KindInternal, Message: fmt.Sprintf("no rule for %v", v.Type())}
}
