package queue

import "time"

// RateWindows are the windows of the leader's moving averages (those of Pravega's stream scaling).
func RateWindows() [RateWindowCount]time.Duration {
	return [...]time.Duration{2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute}
}
