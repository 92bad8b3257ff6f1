package result

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Row is what all runs of one peer and workload gave.
type Row struct {
	Workload string  `json:"workload"`
	Peer     string  `json:"peer"`
	Scale    float64 `json:"scale"`
	Version  string  `json:"version,omitempty"`
	// Runs are those that count, Status the first other one's.
	Runs   int    `json:"runs"`
	Status string `json:"status,omitempty"`

	Sent  Spread `json:"sent,omitzero"`
	Twice Spread `json:"twice,omitzero"`
	In    Spread `json:"in,omitzero"`
	Out   Spread `json:"out,omitzero"`
	// CallP50 and so on are in seconds.
	CallP50 Spread `json:"call_p50,omitzero"`
	CallP99 Spread `json:"call_p99,omitzero"`
	EndP50  Spread `json:"end_p50,omitzero"`
	EndP99  Spread `json:"end_p99,omitzero"`
	EndP999 Spread `json:"end_p999,omitzero"`
	// ServerCPU and ClientCPU are seconds for a million messages.
	ServerCPU     Spread `json:"server_cpu,omitzero"`
	ClientCPU     Spread `json:"client_cpu,omitzero"`
	Peak          Spread `json:"peak,omitzero"`
	PeakAnonymous Spread `json:"peak_anonymous,omitzero"`

	// Ratios are Spillway's figure by this peer's, of each pair.
	RatioIn  Spread `json:"ratio_in,omitzero"`
	RatioOut Spread `json:"ratio_out,omitzero"`
	RatioEnd Spread `json:"ratio_end_p99,omitzero"`
}

// Spread is a median and what lies around it.
type Spread struct{ Median, Least, Most float64 }

// MarshalJSON writes median, least and most as a list, which keeps the file small.
func (s Spread) MarshalJSON() ([]byte, error) {
	return json.Marshal([]float64{s.Median, s.Least, s.Most})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Spread) UnmarshalJSON(text []byte) error {
	var list []float64
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	if len(list) != 3 {
		return fmt.Errorf("a spread of %d numbers, want 3", len(list))
	}
	*s = Spread{Median: list[0], Least: list[1], Most: list[2]}
	return nil
}

// spread gives the spread of values, to four digits.
func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	slices.Sort(values)
	middle := values[len(values)/2]
	if len(values)%2 == 0 {
		middle = (values[len(values)/2-1] + middle) / 2
	}
	return Spread{Median: digits(middle), Least: digits(values[0]), Most: digits(values[len(values)-1])}
}

// digits rounds to four significant digits.
func digits(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-3)
	if unit >= 1 {
		return math.Round(v/unit) * unit
	}
	// Multiplying by a whole number keeps decimals short where dividing would not.
	whole := math.Round(1 / unit)
	return math.Round(v*whole) / whole
}

// Medians puts the runs of one scale together, one row for each workload and peer, in the order in which they
// first appear. Pairs are with the peer named base.
func Medians(runs []Run, base string, scale float64) []Row {
	type pair struct {
		workload string
		round    int
	}
	bases := map[pair]*Run{}
	grouped := map[Key][]*Run{}
	var order []Key
	for i := range runs {
		r := &runs[i]
		if r.Scale != scale {
			continue
		}
		if r.Peer == base && r.Status == OK {
			bases[pair{r.Workload, r.Round}] = r
		}
		key := Key{Workload: r.Workload, Peer: r.Peer}
		if grouped[key] == nil {
			order = append(order, key)
		}
		grouped[key] = append(grouped[key], r)
	}
	rows := make([]Row, 0, len(order))
	for _, key := range order {
		rows = append(rows, row(grouped[key], func(r *Run) *Run { return bases[pair{r.Workload, r.Round}] }))
	}
	return rows
}

// row puts the runs of one peer and workload together.
func row(runs []*Run, base func(*Run) *Run) Row {
	row := Row{Workload: runs[0].Workload, Peer: runs[0].Peer, Scale: runs[0].Scale}
	var good []*Run
	for _, r := range runs {
		switch {
		case r.Status == OK:
			good = append(good, r)
			row.Version = r.Version
		case row.Status == "":
			row.Status = r.Status
		}
	}
	row.Runs = len(good)
	of := func(figure func(*Run) float64) Spread {
		values := make([]float64, 0, len(good))
		for _, r := range good {
			values = append(values, figure(r))
		}
		return spread(values)
	}
	ratio := func(figure func(*Run) float64) Spread {
		var values []float64
		for _, r := range good {
			if b := base(r); b != nil && figure(r) > 0 {
				values = append(values, figure(b)/figure(r))
			}
		}
		return spread(values)
	}
	perMillion := func(v float64, r *Run) float64 { return v / max(float64(r.Sent), 1) * 1e6 }
	row.Sent = of(func(r *Run) float64 { return float64(r.Sent) })
	row.Twice = of(func(r *Run) float64 { return float64(r.Twice) })
	row.In, row.Out = of((*Run).in), of((*Run).out)
	row.CallP50, row.CallP99 = of(func(r *Run) float64 { return r.Call.P50 }), of(func(r *Run) float64 { return r.Call.P99 })
	row.EndP50, row.EndP99 = of(func(r *Run) float64 { return r.End.P50 }), of((*Run).endP99)
	row.EndP999 = of(func(r *Run) float64 { return r.End.P999 })
	row.ServerCPU = of(func(r *Run) float64 { return perMillion(r.ServerCPU, r) })
	row.ClientCPU = of(func(r *Run) float64 { return perMillion(r.ClientCPU, r) })
	row.Peak, row.PeakAnonymous = of(func(r *Run) float64 { return r.Peak }), of(func(r *Run) float64 { return r.PeakAnonymous })
	row.RatioIn, row.RatioOut, row.RatioEnd = ratio((*Run).in), ratio((*Run).out), ratio((*Run).endP99)
	return row
}

func (r *Run) in() float64     { return r.In }
func (r *Run) out() float64    { return r.Out }
func (r *Run) endP99() float64 { return r.End.P99 }
