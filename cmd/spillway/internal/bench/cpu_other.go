//go:build !unix

package bench

import "time"

// CPU is not known here.
func CPU() time.Duration { return 0 }
