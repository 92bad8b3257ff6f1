package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/units"
)

// progressEvery is how often a bar is drawn: often enough to look alive.
const progressEvery = 150 * time.Millisecond

// isTerminal reports whether v is a terminal.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) // #nosec G115 -- a file descriptor
}

// progress draws a bar on standard error until stop is called. total is the length of the input in
// bytes, -1 if it is not known: then there is a spinner and no time of arrival.
type progress struct {
	stop chan struct{}
	done chan struct{}
}

// startProgress asks state for how much was read and what to say of it.
func startProgress(w io.Writer, total int64, state func() (read int64, text string)) *progress {
	p := &progress{make(chan struct{}), make(chan struct{})}
	bar := progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowTotalBytes(true),
		progressbar.OptionSetWidth(20),
		progressbar.OptionSetPredictTime(true),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionShowDescriptionAtLineEnd(),
		progressbar.OptionThrottle(progressEvery/2),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
	draw := func() {
		read, text := state()
		if total >= 0 {
			// A bar that is full ends itself, and would be drawn no more.
			read = min(read, total-1)
		}
		bar.Describe(text)
		// Of a bar that cannot be drawn there is nothing to say.
		_ = bar.Set64(max(read, 0))
	}
	go func() {
		defer close(p.done)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		draw()
		for {
			select {
			case <-p.stop:
				_ = bar.Clear()
				return
			case <-ticker.C:
				draw()
			}
		}
	}()
	return p
}

func (p *progress) end() {
	if p != nil {
		close(p.stop)
		<-p.done
	}
}

// rate is n a second, for people.
func rate(n uint64, d time.Duration) string {
	if d <= 0 {
		return "0"
	}
	return units.FormatCount(float64(n) / d.Seconds())
}

func messagesText(sent, failed uint64, d time.Duration) string {
	s := fmt.Sprintf("%s, %s/s", countOf(sent), rate(sent, d))
	if failed > 0 {
		s += fmt.Sprintf(", %s failed", units.Group(int64(failed))) // #nosec G115 -- a count
	}
	return s
}

// countOf counts messages in words.
func countOf(n uint64) string {
	if n == 1 {
		return "1 message"
	}
	return units.Group(int64(n)) + " messages" // #nosec G115 -- a count
}
