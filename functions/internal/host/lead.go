package host

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/functions/emf"
)

const (
	// ScheduleSource is the source of an event of the schedule.
	ScheduleSource = "aws.scheduler"
	// WakeSource is the source of an event by which a producer under pressure wakes the leader.
	WakeSource = "spillway.wake"
)

// leadPart is the part of a scheduled run's budget that the look at the topics' load may take: promotion
// needs the rest.
const leadPart = 2

// Lead makes one run of the leader: it lets the segments of watched topics follow their load. What is not
// done when its part of the budget is used up is the next run's.
func (h *Host) Lead(ctx context.Context) error {
	ctx, cancel := Budget(ctx)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		part, stop := context.WithTimeout(ctx, time.Until(deadline)/leadPart)
		defer stop()
		ctx = part
	}
	rep, err := h.System.Scale.Run(ctx)
	if rep.Led {
		h.Logger.LogAttrs(ctx, slog.LevelInfo, "led", slog.Int("topics", rep.Topics), slog.Int("splits", rep.Splits),
			slog.Int("merges", rep.Merges), slog.Int("hot", rep.Hot), slog.Int("watched", rep.Watched))
	}
	return h.ran(ctx, emf.Run{Part: true, What: emf.Changed, Done: rep.Splits + rep.Merges, Hot: rep.HotSegments, HasHot: rep.Led}, err)
}
