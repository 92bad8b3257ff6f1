package queue

import "time"

// Bound is the one of lo and hi that n, which is outside of them, broke: what an error's limit has to name.
func Bound[N int | int64 | uint64 | time.Duration](n, lo, hi N) N {
	if n < lo {
		return lo
	}
	return hi
}

// Whole refuses a whole number outside lo..hi with an error that names the field and the bound that was broken.
func Whole[N int | int64 | uint64](field string, n, lo, hi N) error {
	if n >= lo && n <= hi {
		return nil
	}
	return Invalid(field, Bound(n, lo, hi), "must be %d to %d, not %d", lo, hi, n)
}
