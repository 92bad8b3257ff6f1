package cost

import (
	"context"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/functions/emf"
	"github.com/spillway-mq/spillway/pkg/meter"
)

// Assumptions are what the model takes for granted because a run in memory cannot tell: how long things
// take on AWS, one after another as if nothing overlapped. Milliseconds; measured medians (p50) where any
// were to be had, of DynamoDB and S3 from Lambda in the same region.
type Assumptions struct {
	// CallMillis is a call's own work, MillisPerMB what each megabyte in or out adds.
	CallMillis  float64 `json:"call_ms"`
	MillisPerMB float64 `json:"ms_per_mb"`
	// ReadMillis to GetMillis are one request each.
	ReadMillis     float64 `json:"read_ms"`
	WriteMillis    float64 `json:"write_ms"`
	TransactMillis float64 `json:"transact_ms"`
	PutMillis      float64 `json:"put_ms"`
	GetMillis      float64 `json:"get_ms"`
	// APIGB, LeaderGB and CompactorGB are the functions' memory, as deployed.
	APIGB       float64 `json:"api_gb"`
	LeaderGB    float64 `json:"leader_gb"`
	CompactorGB float64 `json:"compactor_gb"`
	// AccessLogBytes is a line of API Gateway's access log.
	AccessLogBytes float64 `json:"access_log_bytes"`
}

// Assumed are the assumptions of every bill.
func Assumed() Assumptions {
	return Assumptions{
		CallMillis: 3, MillisPerMB: 15, ReadMillis: 5, WriteMillis: 7.6, TransactMillis: 25, PutMillis: 75, GetMillis: 30,
		APIGB: 0.5, LeaderGB: 0.25, CompactorGB: 1, AccessLogBytes: 600,
	}
}

// callLogBytes is a call's line in the function's log, its metrics.
func callLogBytes() float64 {
	line := emf.Call{
		At: time.Unix(1_800_000_000, 0), Table: "Spillway-Table0000000-000000000000", Function: "produce",
		Route: "POST /v1/topics/{topic}/messages", Status: 200, Duration: 20 * time.Millisecond, Received: 1000, Sent: 1000,
	}.Line()
	return float64(len(line))
}

// seconds is how long a function runs for what it used.
func (a Assumptions) seconds(u *FunctionUsage) float64 {
	ms := float64(u.Calls)*a.CallMillis + float64(u.CallBytes)/1e6*a.MillisPerMB
	for _, r := range u.Meter.Rows {
		n := float64(r.Calls)
		switch {
		case r.Op == "put payload":
			ms += float64(r.Ops) * a.WriteMillis // a request of its own, counted in its append's call
		case r.Op == "transact":
			ms += n * a.TransactMillis
		case strings.HasSuffix(r.Op, " object"), strings.HasSuffix(r.Op, " objects"):
			if r.Gets > 0 {
				ms += n*a.GetMillis + float64(r.Bytes)/1e6*a.MillisPerMB
			} else {
				ms += n*a.PutMillis + float64(r.Bytes)/1e6*a.MillisPerMB
			}
		case strings.HasPrefix(r.Op, "get"), strings.HasPrefix(r.Op, "query"):
			ms += n * a.ReadMillis
		default:
			ms += n * a.WriteMillis
		}
	}
	ms += float64(u.Beside.Reads)*a.ReadMillis + float64(u.Beside.Writes)*a.WriteMillis
	return ms / 1000
}

// Part is what one thing costs, in US dollars for a million messages, by who uses it.
type Part struct {
	Name    string  `json:"name"`
	Produce float64 `json:"produce"`
	Consume float64 `json:"consume"`
	Compact float64 `json:"compact"`
	Total   float64 `json:"total"`
}

// Bill is what a workload costs.
type Bill struct {
	Workload Workload `json:"workload"`
	KeepDays float64  `json:"keep_days"`
	// CallMessages is how many messages a call carries: fewer than a batch where that is over 3 MiB.
	CallMessages int    `json:"call_messages"`
	Region       string `json:"region"`
	PricesOf     string `json:"prices_of"`
	// Parts add up to PerMillion, dollars for a million messages. PerGB is for 10^9 bytes of bodies.
	Parts      []Part  `json:"parts"`
	PerMillion float64 `json:"usd_per_million_messages"`
	PerGB      float64 `json:"usd_per_gb"`
	// Floor is one S3 put and one write unit a call.
	Floor float64 `json:"floor_usd_per_million_messages"`
	// Rivals are the same load elsewhere, at the workload's rate.
	Rivals []Rival `json:"rivals"`
	Idle   Idle    `json:"idle"`
	// WriteUnitsPerCommit is of the head's update alone.
	WriteUnitsPerCommit float64     `json:"head_write_units_per_commit"`
	Assumptions         Assumptions `json:"assumptions"`
	Usage               *Usage      `json:"usage"`
}

// Of runs a workload and bills it.
func Of(ctx context.Context, w Workload, p Prices) (*Bill, error) {
	u, err := Run(ctx, w)
	if err != nil {
		return nil, err
	}
	idle, err := IdleOf(ctx, p)
	if err != nil {
		return nil, err
	}
	b := billOf(w, u, p)
	b.Idle, b.Rivals = idle, Rivals(w, p)
	return b, nil
}

func billOf(w Workload, u *Usage, p Prices) *Bill {
	a := Assumed()
	b := &Bill{
		Workload: w, KeepDays: w.Keep.Hours() / 24, CallMessages: w.call(), Region: Region, PricesOf: Date,
		Assumptions: a, Usage: u,
	}
	per := func(dollars float64) float64 { return dollars / float64(u.Messages) * million }
	part := func(name string, of func(f *FunctionUsage, t meter.Row, gb float64) float64) {
		x := Part{
			Name: name, Produce: per(of(&u.Produce, u.Produce.Meter.Total(), a.APIGB)),
			Consume: per(of(&u.Consume, u.Consume.Meter.Total(), a.APIGB)), Compact: per(of(&u.Compact, u.Compact.Meter.Total(), a.CompactorGB)),
		}
		x.Total = x.Produce + x.Consume + x.Compact
		b.Parts = append(b.Parts, x)
		b.PerMillion += x.Total
	}
	part("API Gateway requests", func(f *FunctionUsage, _ meter.Row, _ float64) float64 {
		return float64(f.APIUnits) * p.APIRequest.USD / million
	})
	part("Lambda calls", func(f *FunctionUsage, _ meter.Row, _ float64) float64 {
		return float64(f.Calls) * p.LambdaRequest.USD / million
	})
	part("Lambda time (assumed)", func(f *FunctionUsage, _ meter.Row, gb float64) float64 {
		return a.seconds(f) * gb * p.LambdaGBs.USD
	})
	part("DynamoDB writes", func(f *FunctionUsage, t meter.Row, _ float64) float64 {
		return float64(t.WriteUnits+f.Beside.WriteUnits) * p.WriteUnit.USD / million
	})
	part("DynamoDB reads", func(f *FunctionUsage, t meter.Row, _ float64) float64 {
		return float64(t.ReadUnits+f.Beside.ReadUnits) * p.ReadUnit.USD / million
	})
	part("S3 puts", func(f *FunctionUsage, t meter.Row, _ float64) float64 {
		return float64(t.Puts+f.Beside.Puts) * p.S3Put.USD / million
	})
	part("S3 gets", func(_ *FunctionUsage, t meter.Row, _ float64) float64 { return float64(t.Gets) * p.S3Get.USD / million })
	part("logs", func(f *FunctionUsage, _ meter.Row, _ float64) float64 {
		return float64(f.Calls) * (callLogBytes() + a.AccessLogBytes) / gb * p.LogGB.USD
	})
	months := b.KeepDays / daysPerMonth
	kept := Part{Name: "kept bytes", Total: per(months * (float64(u.ObjectBytes)/gb*p.S3GB.USD + float64(u.TableBytes)/gb*(p.TableGB.USD+p.BackupGB.USD)))}
	b.Parts = append(b.Parts, kept)
	b.PerMillion += kept.Total
	b.PerGB = b.PerMillion / (million * float64(w.Size)) * gb
	b.Floor = (p.S3Put.USD + p.WriteUnit.USD) / float64(w.call())
	if app := u.Produce.Meter.Row("append"); app.Ops > 0 {
		b.WriteUnitsPerCommit = float64(app.WriteUnits) / float64(app.Ops)
	}
	return b
}
