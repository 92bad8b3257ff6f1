package meta

// Condition is what a Put or Delete asks of the record that it finds.
type Condition struct {
	kind    conditionKind
	version Version
}

type conditionKind uint8

const (
	condAny conditionKind = iota
	condAbsent
	condVersion
	condPresent
)

// Any holds always.
func Any() Condition { return Condition{} }

// Absent holds if there is no record.
func Absent() Condition { return Condition{kind: condAbsent} }

// Present holds if there is a record.
func Present() Condition { return Condition{kind: condPresent} }

// At holds if the record has exactly this version.
func At(v Version) Condition { return Condition{kind: condVersion, version: v} }

// Version is the version that At asks for; not ok for the other conditions. Drivers that state the
// condition to their store need it.
func (c Condition) Version() (Version, bool) { return c.version, c.kind == condVersion }

// Holds reports whether the condition holds for cur, and if not, why.
func (c Condition) Holds(cur *Item) (Reason, bool) {
	switch c.kind {
	case condAbsent:
		return ReasonExists, cur == nil
	case condPresent:
		return ReasonAbsent, cur != nil
	case condVersion:
		if cur == nil {
			return ReasonAbsent, false
		}
		return ReasonVersion, cur.Version == c.version
	case condAny:
	}
	return 0, true
}

// Put writes a record whole: create with Absent, compare-and-swap with At.
type Put struct {
	Record Record
	If     Condition
	// Version is the new version's token; draw a new one for each Put (NewVersion).
	Version Version
}

// Target implements Op.
func (p Put) Target() Key { return p.Record.Key() }

// Name implements Op.
func (p Put) Name() string { return "put " + p.Record.Kind().String() }

// Change implements Op.
func (p Put) Change(cur *Item) (*Item, Result, error) {
	if reason, ok := p.If.Holds(cur); !ok {
		return nil, Result{}, refuse(p, cur, reason)
	}
	next := &Item{Record: p.Record, Version: p.Version}
	return next, Result{Item: *next}, nil
}

// Once reports whether a store's client must not send op a second time by itself once a try of it may have taken
// effect: nothing in the record would tell the copy, were it the later one to arrive. An append without a producer
// may have been rolled off the tail by then; and a record that is made to be used up may be gone: an entry of the
// delayed index promoted, the intent of a drop or removal deleted by what it was for, which the copy would undo.
// Such an op ends as OutcomeUnknown, and its caller reads, or tries again in a way that tells; never with the same
// op.
func Once(op Op) bool {
	switch op := op.(type) {
	case Append:
		return op.Producer == nil
	case Put:
		switch op.Record.Kind() {
		case KindDelayed, KindDrop, KindRemoval:
			return op.If.kind == condAbsent
		}
	}
	return false
}

// Delete removes a record. With Any, a record that is not there is no error.
type Delete struct {
	Key Key
	If  Condition
	// Kind names the record in metrics.
	Kind Kind
}

// Target implements Op.
func (d Delete) Target() Key { return d.Key }

// Name implements Op.
func (d Delete) Name() string { return "delete " + d.Kind.String() }

// Change implements Op.
func (d Delete) Change(cur *Item) (*Item, Result, error) {
	if reason, ok := d.If.Holds(cur); !ok {
		return nil, Result{}, refuse(d, cur, reason)
	}
	return nil, Result{}, nil
}

// Check asks something of a record and changes nothing: the condition of a transaction. Its result is
// empty.
type Check struct {
	Key Key
	If  Condition
	// Kind names the record in metrics.
	Kind Kind
}

// Target implements Op.
func (c Check) Target() Key { return c.Key }

// Name implements Op.
func (c Check) Name() string { return "check " + c.Kind.String() }

// Change implements Op.
func (c Check) Change(cur *Item) (*Item, Result, error) {
	if reason, ok := c.If.Holds(cur); !ok {
		return nil, Result{}, refuse(c, cur, reason)
	}
	return cur, Result{}, nil
}
