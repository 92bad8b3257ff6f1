package strictjson_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/httpapi/strictjson"
	"github.com/spillway-mq/spillway/pkg/queue"
)

type inner struct {
	TTL  *float64           `json:"ttl"`
	Tags map[string]string  `json:"tags"`
	Null map[string]*string `json:"null"`
}

type outer struct {
	Name  string          `json:"name"`
	Count int             `json:"count"`
	Size  *int64          `json:"size"`
	Seq   *uint64         `json:"seq"`
	Flag  bool            `json:"flag"`
	List  []inner         `json:"list"`
	Raw   json.RawMessage `json:"raw"`
	Times *[]float64      `json:"times"`
	Text  text            `json:"text"`
}

// text is bytes that are a string in JSON.
type text []byte

func (t *text) UnmarshalText(b []byte) error {
	*t = append(text{}, b...)
	return nil
}

func decoder() *strictjson.Decoder {
	return strictjson.New(strictjson.Limits{Depth: 8, Items: 6})
}

func TestAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range []string{
		`{}`, ` { } `, `{"name":"a\"\\\/\b\f\n\r\tAé😀","count":-12,"size":0,"seq":18446744073709551615,"flag":true}`,
		`{"list":[{"ttl":1.5e3},{"ttl":-0.25,"tags":{"a":"b","":""}},{}],"times":[],"raw":{"x":[1,"2",null,true,false,-0.1E-2]}}`,
		`{"name":null,"list":null,"times":null,"flag":null,"seq":null}`, `{"times":[0,1]}`,
		`{"list":[{"null":{"gone":null,"kept":"x"}}]}`,
		`{"text":""}`, `{"text":null}`, `{"text":"plain"}`, `{"text":"\"","name":"\\\\"}`, `{"text":"{\"a\":\"\\\"\\\\\"}"}`,
		`{"text":"\u00e9\ud83d\ude00\u0000 é😀\n"}`,
	} {
		var got, want outer
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		if err := decoder().Decode([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", text, got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct{ text, field string }{
		"empty":                 {``, "request"},
		"not JSON":              {`hello`, "request"},
		"byte order mark":       {"\ufeff{}", "request"},
		"trailing garbage":      {`{} {}`, "request"},
		"trailing comma":        {`{"count":1,}`, "request"},
		"array at the top":      {`[]`, "request"},
		"cut off":               {`{"list":[{"ttl":1`, "request"},
		"cut off in a string":   {`{"name":"abc`, "request"},
		"cut off in an escape":  {`{"name":"\u00`, "request"},
		"cut off after escapes": {`{"text":"\"\\\"`, "request"},
		"number for text":       {`{"text":1}`, "text"},
		"list for text":         {`{"text":[1]}`, "text"},
		"text not UTF-8":        {"{\"text\":\"\\n\xff\"}", "text"},
		"control after escape":  {"{\"text\":\"\\n\n\"}", "request"},
		"unknown field":         {`{"list":[{"tll":1}]}`, "list[0].tll"},
		"other case":            {`{"Name":"x"}`, "Name"},
		"twice":                 {`{"count":1,"count":2}`, "count"},
		"twice by escape":       {`{"count":1,"c\u006funt":2}`, "count"},
		"twice in a map":        {`{"list":[{},{"tags":{"a":"1","a":"2"}}]}`, "list[1].tags.a"},
		"twice in raw":          {`{"raw":{"a":1,"a":2}}`, "raw.a"},
		"string for a number":   {`{"count":"1"}`, "count"},
		"number for a string":   {`{"name":1}`, "name"},
		"object for a list":     {`{"list":{}}`, "list"},
		"number for a flag":     {`{"flag":1}`, "flag"},
		"fraction":              {`{"count":1.0}`, "count"},
		"exponent":              {`{"size":1e2}`, "size"},
		"negative":              {`{"seq":-1}`, "seq"},
		"leading zero":          {`{"count":01}`, "count"},
		"plus":                  {`{"count":+1}`, "count"},
		"NaN":                   {`{"list":[{"ttl":NaN}]}`, "list[0].ttl"},
		"not UTF-8":             {"{\"name\":\"\xff\"}", "name"},
		"overlong UTF-8":        {"{\"name\":\"\xc0\x80\"}", "name"},
		"name not UTF-8":        {"{\"\xff\":1}", "request"},
		"half a pair":           {`{"name":"\ud83d"}`, "request"},
		"half a pair and text":  {`{"name":"\ud83dx\u0041"}`, "request"},
		"pair reversed":         {`{"name":"\ude00\ud83d"}`, "request"},
		"no such escape":        {`{"name":"\x41"}`, "request"},
		"control character":     {"{\"name\":\"a\nb\"}", "request"},
		"too deep":              {`{"raw":` + strings.Repeat("[", 99) + strings.Repeat("]", 99) + `}`, "request"},
		"too many":              {`{"times":[1,2,3,4,5,6,7]}`, "times"},
		"too many empty":        {`{"list":[{},{},{},{},{},{},{}]}`, "list"},
		"too many in raw":       {`{"raw":[1,2,3,4,5,6,7]}`, "raw"},
		"bad literal":           {`{"flag":tru}`, "flag"},
		"name without quotes":   {`{name:1}`, "request"},
		"colon missing":         {`{"name" "x"}`, "request"},
		"comment":               {`{/**/}`, "request"},
		"null in a list":        {`{"list":[{},null]}`, "list[1]"},
		"null among numbers":    {`{"times":[null]}`, "times[0]"},
		"null in a map":         {`{"list":[{"tags":{"a":null}}]}`, "list[0].tags.a"},
		"two commas":            {`{"times":[1,,2]}`, "times[1]"},
		"long name is cut":      {`{"` + strings.Repeat("x", 9999) + `":1}`, strings.Repeat("x", 128) + "…"},
		"number is only a sign": {`{"count":-}`, "count"},
	} {
		var v outer
		err := decoder().Decode([]byte(c.text), &v)
		if !queue.Is(err, queue.KindInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := err.(*queue.Error).Field; got != c.field { //nolint:errorlint // it is one
			t.Errorf("%s: field %q, want %q", name, got, c.field)
		}
	}
}

// TestKeepsNothing: whoever decodes may use the memory of the text again.
func TestKeepsNothing(t *testing.T) {
	const text = `{"name":"plain","text":"plain","list":[{"tags":{"key":"value","k\n":"v\n"}}],"raw":{"a":"b"}}`
	var got, want outer
	data := []byte(text)
	if err := decoder().Decode(data, &got); err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 0xff
	}
	if err := decoder().Decode([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after the text was overwritten: %+v", got)
	}
}

// TestHugeNumbers: the nearest number, so that the field's own limit is what the caller hears of.
func TestHugeNumbers(t *testing.T) {
	var v outer
	err := decoder().Decode([]byte(`{"count":-99999999999999999999,"size":99999999999999999999,"seq":99999999999999999999,"times":[1e999,-1e999]}`), &v)
	if err != nil {
		t.Fatal(err)
	}
	if v.Count != math.MinInt64 || *v.Size != math.MaxInt64 || *v.Seq != math.MaxUint64 ||
		(*v.Times)[0] != math.MaxFloat64 || (*v.Times)[1] != -math.MaxFloat64 {
		t.Errorf("%+v %v %v %v", v, *v.Size, *v.Seq, *v.Times)
	}
}

// FuzzDecode: whatever is taken, encoding/json takes, and reads the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"name":"a😀","count":-12,"list":[{"ttl":1.5e3,"tags":{"a":"b"}}],"raw":[{}],"times":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got, want outer
		err := decoder().Decode(data, &got)
		if err != nil {
			if !queue.Is(err, queue.KindInvalid) {
				t.Errorf("kind of %v", err)
			}
			return
		}
		if err := json.Unmarshal(data, &want); err != nil {
			if strings.Contains(err.Error(), "cannot unmarshal number") {
				return // out of range: the nearest is given
			}
			t.Fatalf("taken, but: %v", err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}
