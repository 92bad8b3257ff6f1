package cost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/functions/emf"
	"github.com/spillway-mq/spillway/pkg/consume"
	"github.com/spillway-mq/spillway/pkg/topics"
)

// Idle is what a deployment costs a month while nothing is produced or consumed, in US dollars.
type Idle struct {
	Parts []IdlePart `json:"parts"`
	Total float64    `json:"usd_per_month"`
	// FreeTier is what of it AWS's always free tier covers, in an account that uses none of it elsewhere.
	FreeTier float64 `json:"free_tier_usd_per_month"`
	// Waiter is what one consumer costs that asks with a long poll all the time, Poller one that asks
	// every ten seconds without waiting; SQSWaiter what the long poll costs there.
	Waiter    float64 `json:"long_poll_usd_per_month"`
	Poller    float64 `json:"poll_each_10s_usd_per_month"`
	SQSWaiter float64 `json:"sqs_long_poll_usd_per_month"`
}

// IdlePart is one line of an idle bill.
type IdlePart struct {
	Name  string  `json:"name"`
	USD   float64 `json:"usd_per_month"`
	Count float64 `json:"count"`
	Unit  string  `json:"unit"`
	// Free is what of USD the free tier covers.
	Free float64 `json:"free_tier_usd"`
}

// What infra deploys: the schedules' rates, and the alarms.
const (
	leaderRuns    = hoursPerMonth * 60
	compactorRuns = hoursPerMonth * 12
	idleAlarms    = 13
	// idleTopics are in the deployment that is measured, each with a subscription.
	idleTopics = 10
	// longPoll is queue.MaxWait; longPollLooks is how often a long poll on one segment looks in that time
	// (pkg/consume: pauses of 0.1 to 0.5 s).
	longPoll      = 20.0
	longPollLooks = 43
	pollEvery     = 10.0
)

// IdleOf measures the scheduled runs of an idle deployment, and prices them with all that stands.
func IdleOf(ctx context.Context, p Prices) (Idle, error) {
	runs, err := idleRuns(ctx)
	if err != nil {
		return Idle{}, fmt.Errorf("idle deployment: %w", err)
	}
	a := Assumed()
	var out Idle
	// add takes a count, of which the first free are free, at a price each.
	add := func(name, unit string, count, free, usd float64) {
		part := IdlePart{Name: name, Unit: unit, Count: count, USD: count * usd, Free: min(count, free) * usd}
		out.Parts = append(out.Parts, part)
		out.Total += part.USD
		out.FreeTier += part.Free
	}
	calls := float64(leaderRuns + compactorRuns)
	lead, tidy := runs.leader.Meter.Total(), runs.compactor.Meter.Total()
	// monthly is of a month what of the measured runs is so much of either.
	monthly := func(l, c float64) float64 { return leaderRuns*l/idleMeasured + compactorRuns*c/idleMeasured }
	seconds := monthly(a.seconds(runs.leader)*a.LeaderGB, a.seconds(runs.compactor)*a.CompactorGB)
	reads := monthly(float64(lead.ReadUnits), float64(tidy.ReadUnits))
	writes := monthly(float64(lead.WriteUnits), float64(tidy.WriteUnits))
	puts := monthly(float64(lead.Puts), float64(tidy.Puts))
	changes, leads, tidies := runLine("leader", emf.Changed, false), runLine("leader", emf.Promoted, true), runLine("compactor", emf.Deleted, false)
	logs := leaderRuns*float64(len(changes)+len(leads)) + compactorRuns*float64(len(tidies))
	metrics := bytes.Count(leads, []byte(`"Unit"`)) + bytes.Count(tidies, []byte(`"Unit"`)) + 1 // Changed; the leader's others are in both its lines
	add("schedules", "invocations", calls, 14e6, p.Schedule.USD/million)
	add("Lambda calls", "calls", calls, 1e6, p.LambdaRequest.USD/million)
	add("Lambda time (assumed)", "GB-s", seconds, 400_000, p.LambdaGBs.USD)
	add(fmt.Sprintf("DynamoDB reads (%d topics)", idleTopics), "units", reads, 0, p.ReadUnit.USD/million)
	add("DynamoDB writes", "units", writes, 0, p.WriteUnit.USD/million)
	add("S3 lists", "requests", puts, 0, p.S3Put.USD/million)
	add("logs", "MB", logs/1e6, 5000, p.LogGB.USD/1000)
	add("metrics of runs", "metrics", float64(metrics), 10, p.Metric.USD)
	add("alarms", "alarms", idleAlarms, 10, p.Alarm.USD)
	add("dashboard", "dashboard", 1, 3, p.Dashboard.USD)

	month := hoursPerMonth * 3600.0
	perCall := (p.APIRequest.USD+p.LambdaRequest.USD)/million + (callLogBytes()+a.AccessLogBytes)/gb*p.LogGB.USD
	reading := func(look *FunctionUsage) float64 {
		return float64(look.Meter.Total().ReadUnits) / idleMeasured * p.ReadUnit.USD / million
	}
	out.Waiter = month / longPoll * (perCall + longPoll*a.APIGB*p.LambdaGBs.USD + longPollLooks*reading(runs.wait))
	out.Poller = month / pollEvery * (perCall + a.seconds(runs.poll)/idleMeasured*a.APIGB*p.LambdaGBs.USD + reading(runs.poll))
	out.SQSWaiter = month / longPoll * p.SQS.USD / million
	return out, nil
}

// runLine is the line of metrics that a scheduled run leaves.
func runLine(function, what string, age bool) []byte {
	return emf.Run{At: time.Unix(1_800_000_000, 0), Table: "Spillway-Table0000000-000000000000", Function: function, What: what, HasAge: age}.Line()
}

// idleMeasured is how many runs, and polls, are measured, after idleSettling others.
const (
	idleMeasured = 60
	idleSettling = 30
)

// idleUsage is what runs of the leader and of the compactor used, empty claims, and looks of a long poll.
type idleUsage struct{ leader, compactor, poll, wait *FunctionUsage }

// idleRuns measures all of it in a deployment whose topics are quiet.
func idleRuns(ctx context.Context) (u idleUsage, err error) {
	v := newWorld(Workload{Batch: 1, Size: 1, Segments: 1, Rate: 1})
	for i := range idleTopics {
		name := fmt.Sprintf("topic-%d", i)
		if _, _, err := v.bare.Topics.Create(ctx, name, topics.Config{}); err != nil {
			return u, err
		}
		if _, _, err := v.bare.Topics.CreateSubscription(ctx, name, "s", topics.SubscriptionConfig{}); err != nil {
			return u, err
		}
	}
	u.leader, err = v.measure(v.function(), time.Minute, func(f *function) error {
		_, serr := f.Scale.Run(ctx)
		_, lerr := f.Lag.Look(ctx)
		_, _, err := f.Delay.PromoteAll(ctx)
		return errors.Join(serr, lerr, err)
	})
	if err != nil {
		return u, err
	}
	u.compactor, err = v.measure(v.compact, 5*time.Minute, func(f *function) error {
		_, rerr := f.Compact.Run(ctx)
		_, err := f.Compact.Sweep(ctx)
		return errors.Join(rerr, err)
	})
	if err != nil {
		return u, err
	}
	claim := func(f *function) error {
		f.usage.Calls++
		_, err := f.Consume.Claim(ctx, consume.ClaimRequest{Topic: "topic-0", Subscription: "s"})
		return err
	}
	if u.poll, err = v.measure(v.consume, pollEvery*time.Second, claim); err != nil {
		return u, err
	}
	u.wait, err = v.measure(v.consume, longPoll*time.Second/longPollLooks, claim)
	return u, err
}

// measure makes runs of a function, some time apart, and gives what idleMeasured of them used together.
func (v *world) measure(f *function, apart time.Duration, run func(*function) error) (*FunctionUsage, error) {
	var before FunctionUsage
	for i := range idleSettling + idleMeasured {
		if i == idleSettling {
			before = f.used()
		}
		v.now = v.now.Add(apart)
		if err := run(f); err != nil {
			return nil, err
		}
	}
	u := f.used()
	u.Meter = u.Meter.Sub(before.Meter)
	u.Calls -= before.Calls
	return &u, nil
}
