package topics

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/pkg/queue"
)

func TestParseRule(t *testing.T) {
	for _, c := range []struct {
		rule string
		ok   bool
	}{
		{"", true},
		{"header:tenant", true},
		{"$.a", true},
		{"$.a.b-c[0].d_1", true},
		{"$[0]", true},
		{"$[0][12]", true},
		{"$.größe", true},
		{"$", false},
		{"a.b", false},
		{"$.", false},
		{"$a", false},
		{"$.a.", false},
		{"$.a[", false},
		{"$.a[-1]", false},
		{"$.a[01]", false},
		{"$.a[x]", false},
		{"$.a[*]", false},
		{"$..a", false},
		{"$.a b", false},
		{"$['a']", false},
		{"$.\xff", false},
		{"header:", false},
		{"header:a\nb", false},
		{"$." + strings.Repeat("a", maxRuleBytes), false},
		{"$" + strings.Repeat(".a", queue.MaxJSONDepth), true},
		{"$" + strings.Repeat(".a", queue.MaxJSONDepth+1), false},
	} {
		_, err := ParseRule("partition_key", c.rule)
		if (err == nil) != c.ok {
			t.Errorf("ParseRule(%q) = %v, want ok %v", c.rule, err, c.ok)
		}
		if err != nil && queue.CodeOf(err) != queue.CodeInvalidArgument {
			t.Errorf("ParseRule(%q): code %s", c.rule, queue.CodeOf(err))
		}
	}
}

func TestPartitionKey(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200)
	for _, c := range []struct {
		name, rule, body string
		headers          map[string]string
		want             string
	}{
		{"no rule", "", `{"a":"x"}`, nil, ""},
		{"header", "header:h", "", map[string]string{"h": "v"}, "v"},
		{"header absent", "header:h", "", map[string]string{"H": "v"}, ""},
		{"header empty", "header:h", "", map[string]string{"h": ""}, ""},
		{"string", "$.a", `{"a":"x"}`, nil, "x"},
		{"spaces", "$.a", " {\n\t\"z\" : [ 1 , {\"a\":\"no\"} ] , \"a\" :\r \"x\" } ", nil, "x"},
		{"nested", "$.a.b[1].c", `{"a":{"q":[[]],"b":[{"c":1},{"d":"]}","c":"x"}]}}`, nil, "x"},
		{"root array", "$[2]", `["a","b","c"]`, nil, "c"},
		{"past the end", "$[3]", `["a","b","c"]`, nil, ""},
		{"empty array", "$[0]", `[]`, nil, ""},
		{"empty object", "$.a", `{}`, nil, ""},
		{"escaped value", "$.a", `{"a":"\u00e9\n\"x"}`, nil, "é\n\"x"},
		{"escaped name", "$.a", `{"\u0061":"x"}`, nil, "x"},
		{"escaped quote in passed string", "$.a", `{"z":"\\\"}","a":"x"}`, nil, "x"},
		{"first of equal names", "$.a", `{"a":"x","a":"y"}`, nil, "x"},
		{"name inside a passed value", "$.a", `{"z":{"a":"no"},"a":"x"}`, nil, "x"},
		{"integer", "$.a", `{"a":1}`, nil, "1"},
		{"float that is integer", "$.a", `{"a":1.0}`, nil, "1"},
		{"exponent", "$.a", `{"a":1e0}`, nil, "1"},
		{"fraction", "$.a", `{"a":0.50}`, nil, "0.5"},
		{"negative zero", "$.a", `{"a":-0}`, nil, "0"},
		{"negative zero float", "$.a", `{"a":-0.0}`, nil, "0"},
		{"large integer keeps its digits", "$.a", `{"a":12345678901234567891}`, nil, "12345678901234567891"},
		{"out of range keeps its text", "$.a", `{"a":1e999}`, nil, "1e999"},
		{"true", "$.a", `{"a":true}`, nil, "true"},
		{"false", "$.a", `{"a":false,"b":1}`, nil, "false"},
		{"null", "$.a", `{"a":null}`, nil, ""},
		{"object", "$.a", `{"a":{}}`, nil, ""},
		{"array", "$.a", `{"a":[1]}`, nil, ""},
		{"empty string", "$.a", `{"a":""}`, nil, ""},
		{"index into object", "$[0]", `{"0":"x"}`, nil, ""},
		{"name in array", "$.a", `["a"]`, nil, ""},
		{"no JSON", "$.a", `a: x`, nil, ""},
		{"empty body", "$.a", "", nil, ""},
		{"cut off", "$.a", `{"a":"x`, nil, ""},
		{"cut off later", "$.a", `{"a":"x","b`, nil, "x"},
		{"not a word", "$.a", `{"a":trve}`, nil, ""},
		{"not a number", "$.a", `{"a":01}`, nil, ""},
		{"bad escape", "$.a", `{"a":"\q"}`, nil, ""},
		{"not UTF-8", "$.a", "{\"a\":\"\xff\"}", nil, ""},
		{"missing comma", "$.b", `{"a":1 "b":2}`, nil, ""},
		{"too deep to pass", "$.z", `{"a":` + deep + `,"z":"x"}`, nil, ""},
		{"longest", "$.a", `{"a":"` + strings.Repeat("k", queue.MaxKeyBytes) + `"}`, nil, strings.Repeat("k", queue.MaxKeyBytes)},
		{"too long", "$.a", `{"a":"` + strings.Repeat("k", queue.MaxKeyBytes+1) + `"}`, nil, ""},
		{"rule that is none", "nonsense", `{"a":1}`, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := PartitionKey(c.rule, []byte(c.body), c.headers)
			if string(got) != c.want || ok != (c.want != "") {
				t.Errorf("PartitionKey(%q) = %q %v, want %q", c.rule, got, ok, c.want)
			}
		})
	}
}

func TestKeyDoesNotPointIntoTheBody(t *testing.T) {
	body := []byte(`{"a":"xyz"}`)
	key, _ := PartitionKey("$.a", body, nil)
	clear(body)
	if string(key) != "xyz" {
		t.Errorf("the key changed with the body: %q", key)
	}
}

func FuzzPartitionKey(f *testing.F) {
	f.Add("$.a.b[1]", []byte(`{"a":{"b":[1,"x"]}}`))
	f.Add("$[0]", []byte(`[{"a":1}]`))
	f.Add("$.a", []byte("{\"\\u0061\":\"\\ud800\"}"))
	f.Fuzz(func(t *testing.T, rule string, body []byte) {
		key, ok := PartitionKey(rule, body, nil)
		again, _ := PartitionKey(rule, body, nil)
		if !bytes.Equal(key, again) || ok != (len(key) > 0) || len(key) > queue.MaxKeyBytes {
			t.Errorf("key %q, then %q, ok %v", key, again, ok)
		}
	})
}
