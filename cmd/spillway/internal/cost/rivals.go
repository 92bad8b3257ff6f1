package cost

import "math"

// Rival is what the same load costs elsewhere.
type Rival struct {
	Name string `json:"name"`
	// PerMillion is dollars for a million messages at the workload's rate, its part of Monthly included;
	// PerGB for 10^9 bytes of bodies. Monthly is what is paid however little comes. Not set where Beyond.
	PerMillion float64 `json:"usd_per_million_messages"`
	PerGB      float64 `json:"usd_per_gb"`
	Monthly    float64 `json:"usd_per_month_fixed"`
	// Beyond: the load is more than this one bears.
	Beyond bool `json:"beyond_capacity,omitempty"`
}

const (
	sqsBatch = 10
	sqsChunk = 64 << 10
	// sqsCallBytes bounds the bodies of a batch.
	sqsCallBytes = 1 << 20

	kinesisRound     = 1 << 10
	kinesisPutUnit   = 25 << 10
	kinesisMaxRecord = 1 << 20
	shardIn          = 1 << 20
	shardOut         = 2 << 20
	shardRecords     = 1000

	// mskBrokers is the least that a provisioned cluster has; mskSmallIn what two brokers of the smallest
	// kind are taken to bear, in bytes a second (an assumption, no promise of AWS).
	mskBrokers    = 2
	mskSmallIn    = 4e6
	mskReplicas   = 2
	mskPartitions = 1
	// mskLeastGB is the storage of each broker at least.
	mskLeastGB = 10
	// mskServerlessIn is the most that a serverless cluster takes in.
	mskServerlessIn = 200e6
)

// Rivals bills a workload elsewhere. Each is taken at its best: SQS in full batches of ten, or of what the
// batch has; Kinesis with the messages of a batch joined into one record.
func Rivals(w Workload, p Prices) []Rival {
	perMonth := w.Rate * hoursPerMonth * 3600 // messages
	bytes := w.Rate * float64(w.Size)         // a second
	out := []Rival{
		{Name: "SQS standard", PerMillion: sqs(w, p.SQS.USD)},
		{Name: "SQS FIFO", PerMillion: sqs(w, p.SQSFIFO.USD)},
		kinesisOnDemand(w, p), kinesisProvisioned(w, p),
		{
			Name: "MSK serverless", Monthly: hoursPerMonth * (p.MSKServerlessHour.USD + float64(mskPartitions*w.Segments)*p.MSKPartitionHour.USD),
			PerMillion: million * float64(w.Size) / gb * (p.MSKIn.USD + float64(w.Groups)*p.MSKOut.USD + months(w)*p.MSKStorageGB.USD),
			Beyond:     bytes > mskServerlessIn,
		},
		{
			Name:    "MSK, 2 x kafka.t3.small",
			Monthly: mskBrokers * (hoursPerMonth*p.MSKBrokerHour.USD + math.Max(mskLeastGB, bytes*w.Keep.Seconds()*mskReplicas/mskBrokers/gb)*p.MSKStorageGB.USD),
			Beyond:  bytes > mskSmallIn,
		},
	}
	for i := range out {
		r := &out[i]
		if r.Beyond {
			r.PerMillion, r.Monthly = 0, 0
			continue
		}
		r.PerMillion += r.Monthly / perMonth * million
		r.PerGB = r.PerMillion / (million * float64(w.Size)) * gb
	}
	return out
}

func months(w Workload) float64 { return w.Keep.Hours() / hoursPerMonth }

func ceil(n, unit float64) float64 { return math.Ceil(n / unit) }

// sqs is a queue for each group: a send, a receive and a delete for each batch, each group.
func sqs(w Workload, usd float64) float64 {
	n := min(w.Batch, sqsBatch, max(1, sqsCallBytes/w.Size))
	chunks := math.Max(1, ceil(float64(n*w.Size), sqsChunk))
	return float64(w.Groups) * (2*chunks + 1) / float64(n) * usd
}

// record is how many messages are joined into one Kinesis record, and its bytes.
func record(w Workload) (n, bytes float64) {
	joined := min(w.Batch, max(1, kinesisMaxRecord/w.Size))
	return float64(joined), float64(joined * w.Size)
}

func kinesisOnDemand(w Workload, p Prices) Rival {
	n, bytes := record(w)
	perMessage := ceil(bytes, kinesisRound) * kinesisRound / n
	return Rival{
		Name: "Kinesis on demand", Monthly: hoursPerMonth * p.KinesisStreamHour.USD,
		PerMillion: million * perMessage / gb * (p.KinesisIn.USD + float64(w.Groups)*p.KinesisOut.USD),
	}
}

// kinesisProvisioned has as many shards as the load needs, in and out, and no room beside.
func kinesisProvisioned(w Workload, p Prices) Rival {
	n, bytes := record(w)
	records := w.Rate / n
	shards := math.Max(1, math.Max(ceil(records, shardRecords), math.Max(ceil(records*bytes, shardIn), ceil(float64(w.Groups)*records*bytes, shardOut))))
	return Rival{
		Name: "Kinesis provisioned", Monthly: hoursPerMonth * shards * p.KinesisShardHour.USD,
		PerMillion: ceil(bytes, kinesisPutUnit) / n * p.KinesisPutUnit.USD,
	}
}
