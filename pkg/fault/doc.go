// Package fault makes stores fail on purpose. It wraps any meta.Store and blob.Store and injects, by
// a Plan, what happens to a process and its stores in life: refused requests, lost answers, late and
// doubled requests, slow and frozen calls, and the death of the process between any two calls.
//
// Vocabulary: a plan stands for one process and is shared by all of its wrapped stores; a call is one
// call of a store's method; a step is the number of a call in its plan, from 1; a fault is what
// happens to one call. A call is dead if it was made after the plan's crash.
//
// A plan decides by its rules (Script), by a seed (Random), or is made by EachStep, which runs a
// scenario once for each step and fault:
//
//	fault.EachStep(t, func(t *testing.T, plan *fault.Plan) {
//		records := memmeta.New(t)
//		first := open(fault.Meta(records, plan))
//		err := first.Append(ctx, batch) // may fail, at any step, in any way
//		second := open(records)         // the next process: it works on the bare store
//		// finish or retry with second, and check the invariants
//	})
//
// Names of calls. Records: "get", "query", "transact", and the meta.Op's own name for an Apply
// ("append", "put page"). Objects: "create object", "put object", "get object", "open object", "head
// object", "list objects", "delete objects".
//
// Invariants:
//   - A fault that says that nothing happened leaves the store untouched; one that says that the call
//     was applied has applied it exactly once (Repeat: twice).
//   - Every error made here is a *queue.Error of a kind that the contract allows, caused by an
//     *Injected.
//   - Equal plans give equal faults to equal sequences of calls. Calls made at the same time are
//     numbered as they come in, so only a single caller's order is fixed.
//
// All methods are safe for concurrent use.
//
// Non-goals: faults that the contracts exclude (torn objects, lost writes that were acknowledged,
// stale reads), corrupt bytes, counting costs (pkg/meter).
package fault
