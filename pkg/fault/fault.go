package fault

import (
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// Fault is what happens to one call.
type Fault uint8

// The faults. A read that is answered with an error is answered with Unavailable, whether it was
// carried out or not.
const (
	// None: the call is carried out as it is.
	None Fault = iota
	// FailBefore: nothing happens; Unavailable.
	FailBefore
	// FailAfter: the call is carried out and its answer dropped; OutcomeUnknown for a write.
	FailAfter
	// CrashBefore: the process dies before the call; Canceled, and so is every later call.
	CrashBefore
	// CrashAfter: the call is carried out, then the process dies; Canceled, and so is every
	// later call.
	CrashAfter
	// Throttle: nothing happens; Throttled.
	Throttle
	// Cut stops half-way. Get and Open give the first half of the bytes, then Unavailable;
	// Delete of several objects removes the first half (rounded up), then OutcomeUnknown; Query
	// and List answer with the first half of their page (rounded up) and More, which is no
	// error. To any other call it is FailBefore.
	Cut
	// Delay: the call is carried out after a pause; Canceled, and nothing happens, if its
	// context ends first.
	Delay
	// Hang: nothing happens until the call's context ends or the process crashes; then Canceled.
	Hang
	// Freeze: the call is carried out once Plan.Release is called; Canceled, and nothing
	// happens, if its context ends or the process crashes first.
	Freeze
	// Late: the caller is told OutcomeUnknown at once, and the request arrives when
	// Plan.Release is called, whatever has become of its context; its answer is lost. To a read
	// it is FailBefore.
	Late
	// Repeat: the call is carried out twice, as by a client library that tries again after a
	// lost answer; the caller is given the second answer.
	Repeat

	faults
)

var faultNames = [...]string{
	None: "no fault", FailBefore: "fail before", FailAfter: "fail after", CrashBefore: "crash before",
	CrashAfter: "crash after", Throttle: "throttle", Cut: "cut", Delay: "delay", Hang: "hang",
	Freeze: "freeze", Late: "late", Repeat: "repeat",
}

// String names the fault in words.
func (f Fault) String() string {
	if f < faults {
		return faultNames[f]
	}
	return fmt.Sprintf("fault %d", uint8(f))
}

// Injected is the cause of every error that this package makes.
type Injected struct {
	Fault Fault
	// Step is the call's number in its plan; 0 if the process was dead already.
	Step int
}

// Error says which fault of which step it was.
func (i *Injected) Error() string {
	if i.Step == 0 {
		return "injected: the process is dead"
	}
	return fmt.Sprintf("injected at step %d: %s", i.Step, i.Fault)
}

// IsInjected reports whether err was made by this package, and not by a store.
func IsInjected(err error) bool {
	var i *Injected
	return errors.As(err, &i)
}

// fail makes the error of a call that a fault has ended.
func (c *Call) fail(kind queue.Kind, cause error) error {
	inj := &Injected{Fault: c.Fault, Step: c.Step}
	e := &queue.Error{Op: c.Op, Subject: c.Key, Kind: kind, Err: inj}
	if cause != nil {
		e.Err = errors.Join(inj, cause)
	}
	return e
}

// lost is the error of a call that was carried out and whose answer the caller never sees.
func (c *Call) lost() error {
	if c.Write {
		return c.fail(queue.KindOutcomeUnknown, nil)
	}
	return c.fail(queue.KindUnavailable, nil)
}
