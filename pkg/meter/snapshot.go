package meter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Row holds the counts of one op name.
type Row struct {
	// Op is the name; the package's doc comment lists them.
	Op string `json:"op"`
	// Calls is the number of calls made for the op alone: 0 for ops within transactions and for
	// payloads, whose call is counted in the row of the transaction or the append.
	Calls int64 `json:"calls"`
	// Ops is how often the op was asked for.
	Ops int64 `json:"ops"`
	// Errors is how many ended in an error, refusals included; in a failed transaction all of
	// its ops do.
	Errors int64 `json:"errors"`
	// Refusals is how many were refused by their own condition.
	Refusals int64 `json:"refusals"`
	// Bytes is what was read, or the size of the records and objects written.
	Bytes int64 `json:"bytes"`
	// ReadUnits and WriteUnits are DynamoDB's, Gets and Puts requests of S3's two classes.
	ReadUnits  int64 `json:"read_units"`
	WriteUnits int64 `json:"write_units"`
	Gets       int64 `json:"gets"`
	Puts       int64 `json:"puts"`
}

// Snapshot is the counts at one time: one row for each op name that was seen, sorted by name. Counts
// of calls that are being made while it is taken may be in it in part.
type Snapshot struct {
	Rows []Row `json:"rows"`
}

// Snapshot reads the counts.
func (m *Meter) Snapshot() Snapshot {
	table := *m.rows.Load()
	rows := make([]Row, 0, len(table))
	for name, c := range table {
		rows = append(rows, Row{
			Op: name, Calls: c.calls.Load(), Ops: c.ops.Load(), Errors: c.errors.Load(),
			Refusals: c.refusals.Load(), Bytes: c.bytes.Load(), ReadUnits: c.readUnits.Load(),
			WriteUnits: c.writeUnits.Load(), Gets: c.gets.Load(), Puts: c.puts.Load(),
		})
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Op, b.Op) })
	return Snapshot{rows}
}

func (r Row) plus(o Row, sign int64) Row {
	r.Calls += sign * o.Calls
	r.Ops += sign * o.Ops
	r.Errors += sign * o.Errors
	r.Refusals += sign * o.Refusals
	r.Bytes += sign * o.Bytes
	r.ReadUnits += sign * o.ReadUnits
	r.WriteUnits += sign * o.WriteUnits
	r.Gets += sign * o.Gets
	r.Puts += sign * o.Puts
	return r
}

// Sub is what was counted between earlier and s, both of one meter. Rows without a count are left out.
func (s Snapshot) Sub(earlier Snapshot) Snapshot {
	var out Snapshot
	for _, r := range s.Rows {
		r = r.plus(earlier.Row(r.Op), -1)
		if r != (Row{Op: r.Op}) {
			out.Rows = append(out.Rows, r)
		}
	}
	return out
}

// Row finds the row of an op name; one of zeros if there is none.
func (s Snapshot) Row(name string) Row {
	i, ok := slices.BinarySearchFunc(s.Rows, name, func(r Row, n string) int { return cmp.Compare(r.Op, n) })
	if !ok {
		return Row{Op: name}
	}
	return s.Rows[i]
}

// Ops is how often the op of that name was asked for. A name that ends in "*" stands for all that
// start with what is before it: "get *" for all records and objects read by key and found.
func (s Snapshot) Ops(name string) int64 {
	prefix, wild := strings.CutSuffix(name, "*")
	if !wild {
		return s.Row(name).Ops
	}
	var n int64
	for _, r := range s.Rows {
		if strings.HasPrefix(r.Op, prefix) {
			n += r.Ops
		}
	}
	return n
}

// Total is the sum of all rows, under the name "total".
func (s Snapshot) Total() Row {
	var t Row
	for _, r := range s.Rows {
		t = t.plus(r, 1)
	}
	t.Op = "total"
	return t
}

// Calls is the number of calls of both contracts together.
func (s Snapshot) Calls() int64 { return s.Total().Calls }

// String renders a table with a line for each row and their total.
func (s Snapshot) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "op\tcalls\tops\terrors\trefusals\tbytes\tread units\twrite units\tgets\tputs\t")
	for _, r := range append(slices.Clip(s.Rows), s.Total()) {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.Op, r.Calls, r.Ops, r.Errors,
			r.Refusals, r.Bytes, r.ReadUnits, r.WriteUnits, r.Gets, r.Puts)
	}
	_ = w.Flush() // a strings.Builder takes every write
	return b.String()
}
