package meta_test

import (
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"

	"github.com/spillway-mq/spillway/pkg/meta"
	"github.com/spillway-mq/spillway/pkg/queue"
)

// TestNoFieldIsLost fills every field of every record with values of its own and holds that they come
// back: a field that is added to a record and not to its codec is found here.
func TestNoFieldIsLost(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, record := range []meta.Record{
		new(meta.Name), new(meta.Topic), new(meta.Segment), new(meta.Head), new(meta.RefPage), new(meta.Payload),
		new(meta.Subscription), new(meta.Cursor), new(meta.Delayed), new(meta.Forward), new(meta.Attempt),
		new(meta.Lease), new(meta.Work), new(meta.Drop), new(meta.Hold), new(meta.Freed), new(meta.Condemned), new(meta.Progress),
		new(meta.Watch), new(meta.Gauge), new(meta.Event),
		new(meta.Removal),
	} {
		t.Run(record.Kind().String(), func(t *testing.T) {
			for range 100 {
				v := reflect.ValueOf(record).Elem()
				v.SetZero()
				fill(t, rng, v)
				switch r := record.(type) {
				case *meta.Cursor:
					rekey(r)
				case *meta.Head:
					r.Producers = inOrder(r.Producers)
				}
				item := meta.Item{Record: record, Version: meta.Version(rng.Uint64())}
				data, err := meta.Encode(nil, &item)
				if err != nil {
					t.Fatal(err)
				}
				item.Size = len(data)
				got, err := meta.Decode(record.Key(), data)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, item) {
					t.Fatalf("comes back as\n%+v\nwas\n%+v", got.Record, record)
				}
			}
		})
	}
}

// rekey files claims under their own ids, as the contract has it.
func rekey(c *meta.Cursor) {
	claims := make(map[queue.ClaimID]meta.Claim)
	for _, cl := range c.Claims {
		claims[cl.ID] = cl
	}
	c.Claims = claims
}

// inOrder gives producers the order of their ids, as the contract has it.
func inOrder(list meta.Producers) (out meta.Producers) {
	for _, p := range list {
		out = out.With(p.ID, p.ProducerState)
	}
	return out
}

// fill gives every field in v, at any depth, a value that is not zero.
func fill(t *testing.T, rng *rand.Rand, v reflect.Value) {
	t.Helper()
	bits := uint(v.Type().Size() * 8)
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1 + int64(rng.Uint64()>>(65-bits+uint(rng.IntN(int(bits)-8)))&(1<<48-1)))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + rng.Uint64()>>(65-bits))
	case reflect.Float32:
		v.SetFloat(float64(rng.Float32() * 1e6))
	case reflect.String:
		v.SetString("x" + strconv.FormatUint(rng.Uint64()>>rng.IntN(64), 36))
	case reflect.Array:
		for i := range v.Len() {
			fill(t, rng, v.Index(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+rng.IntN(3), 3))
		for i := range v.Len() {
			fill(t, rng, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + rng.IntN(3) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, rng, key)
			fill(t, rng, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, rng, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, rng, v.Field(i))
		}
	default:
		t.Fatalf("a field of kind %v: teach fill about it", v.Kind())
	}
}
