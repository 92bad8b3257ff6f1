// Part of the standard library's package time in the server of the soak, by an overlay (clock_test.go), in which the
// library's own Now is called unshifted.
package time

import "sync/atomic"

// Shift points to what is added to the wall clock, in seconds. Nil adds nothing.
var Shift atomic.Pointer[int64]

// Now returns the current local time, on the shifted wall clock. Its monotonic reading is the real one, as it is when
// the machine's clock is set.
func Now() Time {
	t := unshifted()
	if at := Shift.Load(); at != nil {
		t.addSec(atomic.LoadInt64(at))
	}
	return t
}
