package dynamometa

import (
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// attrs is an item, or a map within one, in the client's form.
type attrs = map[string]types.AttributeValue

// expr collects the parts of a condition and an update expression with their placeholders. Every
// attribute name is a placeholder, so that no name can meet one of DynamoDB's reserved words and
// producer ids may hold any character.
type expr struct {
	cond, set, add, remove []string

	alias map[string]string // name to placeholder
	names map[string]string // placeholder to name
	vals  attrs
}

// path renders a document path of attribute and map keys.
func (e *expr) path(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		a, ok := e.alias[p]
		if !ok {
			a = "#" + strconv.Itoa(len(e.alias))
			if e.alias == nil {
				e.alias, e.names = make(map[string]string), make(map[string]string)
			}
			e.alias[p], e.names[a] = a, p
		}
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(a)
	}
	return b.String()
}

func (e *expr) val(v types.AttributeValue) string {
	if e.vals == nil {
		e.vals = make(attrs)
	}
	p := ":" + strconv.Itoa(len(e.vals))
	e.vals[p] = v
	return p
}

// where adds a condition made of its parts: where(e.path("n"), " = ", e.val(v)).
func (e *expr) where(parts ...string) { e.cond = append(e.cond, strings.Join(parts, "")) }

func (e *expr) setTo(path string, v types.AttributeValue) {
	e.set = append(e.set, path+" = "+e.val(v))
}

// addTo adds to a number of the item's top level, which may be absent; nothing if n is 0.
func (e *expr) addTo(name string, n uint64) {
	if n != 0 {
		e.add = append(e.add, e.path(name)+" "+e.val(number(n)))
	}
}

func (e *expr) drop(path string) { e.remove = append(e.remove, path) }

// exists asks that the record is there.
func (e *expr) exists() { e.where("attribute_exists(", e.path(attrPK), ")") }

// condition renders the condition, nil if there is none; update the update expression.
func (e *expr) condition() *string {
	if len(e.cond) == 0 {
		return nil
	}
	s := strings.Join(e.cond, " AND ")
	return &s
}

func (e *expr) update() *string {
	var parts []string
	for _, c := range []struct {
		word string
		list []string
	}{{"SET ", e.set}, {"REMOVE ", e.remove}, {"ADD ", e.add}} {
		if len(c.list) > 0 {
			parts = append(parts, c.word+strings.Join(c.list, ", "))
		}
	}
	s := strings.Join(parts, " ")
	return &s
}

func number[T ~uint64 | ~int64 | ~uint32 | ~int](n T) types.AttributeValue {
	if n < 0 {
		return &types.AttributeValueMemberN{Value: strconv.FormatInt(int64(n), 10)}
	}
	return &types.AttributeValueMemberN{Value: strconv.FormatUint(uint64(n), 10)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func binaryOf(b []byte) types.AttributeValue { return &types.AttributeValueMemberB{Value: b} }

func mapOf(m attrs) types.AttributeValue { return &types.AttributeValueMemberM{Value: m} }

// offsetKey is how an offset names an entry of a map.
func offsetKey(o queue.Offset) string { return strconv.FormatUint(uint64(o), 10) }
