package latency

import "time"

// Figure is a published measurement, in milliseconds; 0 is a percentile that the source does not tell.
type Figure struct {
	Service, Request string
	// Least to P999 are percentiles. Slowest is the slowest of Count requests.
	Least, P50, P90, P95, P99, P999, Slowest float64
	Count                                    int
	// Bytes is the size that was measured; each byte above it takes another 1/PerSecond seconds. 0 is no growth.
	Bytes, PerSecond int
	// Source, Date and Note are for the page; Read says that a stored copy of the source was read and tells
	// these numbers.
	Source, Date, Note string
	Read               bool
}

// slowestAt is the median share at which the slowest of n draws lies.
func slowestAt(n int) float64 {
	const half = 0.693147 // ln 2
	return 1 - half/float64(n)
}

// Curve goes through the figure's percentiles.
func (f *Figure) Curve() Curve {
	var points []Point
	add := func(at, ms float64) {
		if ms > 0 {
			points = append(points, Point{at, millis(ms)})
		}
	}
	add(0.5, f.P50)
	add(0.9, f.P90)
	add(0.95, f.P95)
	add(0.99, f.P99)
	if f.Count > 0 {
		add(slowestAt(f.Count), f.Slowest)
	}
	add(0.999, f.P999)
	return Through(millis(f.Least), points...)
}

// transfer is what n bytes take beyond what was measured.
func (f *Figure) transfer(n int) time.Duration {
	if f.PerSecond == 0 || n <= f.Bytes {
		return 0
	}
	return time.Duration(float64(n-f.Bytes) / float64(f.PerSecond) * float64(time.Second))
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

const (
	kib = 1 << 10
	mib = 1 << 20

	deBrie      = "https://github.com/alexdebrie/dynamodb-performance-testing"
	napkin      = "https://github.com/sirupsen/napkin-math/pull/39"
	turbopuffer = "https://turbopuffer.com/docs-md/architecture.md"
	smithy      = "https://github.com/smithy-lang/smithy-rs/pull/3446"
)

// TableFigures are those of the kinds of request of a table.
type TableFigures struct{ Read, Many, Write, Transact, TransactMany Figure }

// DynamoDB is what was published of it with percentiles, from Lambda in the same region. For reads nothing
// was found: those of the writes of as many items are taken, which a read is not slower than.
func DynamoDB() TableFigures {
	write := Figure{
		Service: "DynamoDB", Request: "PutItem; taken for UpdateItem and DeleteItem, too",
		Least: 5.47, P50: 7.55, P90: 11.3, P95: 13.2, P99: 16.2, Slowest: 29, Count: 400,
		Source: deBrie, Date: "February 2020", Note: "from Lambda, Python", Read: true,
	}
	read := write
	read.Request, read.Read = "GetItem: no percentiles found, PutItem's are taken", false
	many := Figure{
		Service: "DynamoDB", Request: "Query, BatchGetItem: no percentiles found, those of a BatchWriteItem of 25 are taken",
		Least: 7.96, P50: 10.2, P90: 16, P95: 18, P99: 27.6, Slowest: 76.4, Count: 400,
		Source: deBrie, Date: "February 2020", Note: "from Lambda, Python",
	}
	transact := Figure{
		Service: "DynamoDB", Request: "TransactWriteItems of up to 5",
		Least: 19.4, P50: 25.3, P90: 30.7, P95: 36.4, P99: 92.5, Slowest: 218, Count: 400,
		Source: deBrie, Date: "February 2020", Note: "from Lambda, Python", Read: true,
	}
	larger := Figure{
		Service: "DynamoDB", Request: "TransactWriteItems of more (25)",
		Least: 23.5, P50: 32.1, P90: 40.5, P95: 47.2, P99: 97.5, Slowest: 258, Count: 400,
		Source: deBrie, Date: "February 2020", Note: "from Lambda, Python", Read: true,
	}
	return TableFigures{Read: read, Many: many, Write: write, Transact: transact, TransactMany: larger}
}

// BucketFigures are of one storage class, as one source has them.
type BucketFigures struct{ Get, Put Figure }

// S3Standard is S3 Standard by the source that tells its tail, and finds it slow.
func S3Standard() BucketFigures {
	return BucketFigures{
		Get: Figure{
			Service: "S3 Standard", Request: "GET", P50: 63, P99: 78, P999: 118, PerSecond: 82 * mib,
			Source: turbopuffer, Date: "not dated, as of 2026", Note: "size not told; taken as that of an empty one, and a MiB as 1/82 s (the next source's)", Read: true,
		},
		Put: Figure{
			Service: "S3 Standard", Request: "PUT", P50: 100, P99: 195, P999: 274, PerSecond: 95 * mib,
			Source: turbopuffer, Date: "not dated, as of 2026", Note: "size not told; taken as that of an empty one, and a MiB as 1/95 s (the next source's)", Read: true,
		},
	}
}

// S3StandardFast is S3 Standard by a source that finds it faster.
func S3StandardFast() BucketFigures {
	return BucketFigures{
		Get: Figure{
			Service: "S3 Standard, fast", Request: "GET of 128 KiB", P50: 26, P90: 40, P99: 73, Bytes: 128 * kib, PerSecond: 82 * mib,
			Source: napkin, Date: "June 2026", Note: "us-east-1; its author later saw a higher p99", Read: true,
		},
		Put: Figure{
			Service: "S3 Standard, fast", Request: "PUT of 128 KiB", P50: 30, P90: 54, P99: 88, Bytes: 128 * kib, PerSecond: 95 * mib,
			Source: napkin, Date: "June 2026", Note: "us-east-1; its author later saw a higher p99", Read: true,
		},
	}
}

// S3Express is S3 Express One Zone in the caller's zone. Only means were found; how the tail lies to the
// middle is taken from S3Standard.
func S3Express() BucketFigures {
	standard := S3Standard()
	// Means of 12.0 and 39.1 ms for 64 KiB and 1 MiB.
	const perSecond = (mib - 64*kib) * 10_000 / 271
	like := func(f Figure, mean float64) Figure {
		f.Service, f.P99, f.P999, f.P50 = "S3 Express One Zone", mean*f.P99/f.P50, mean*f.P999/f.P50, mean
		f.Bytes, f.PerSecond, f.Source, f.Date, f.Read = 64*kib, 0, smithy, "February 2024", false
		return f
	}
	f := BucketFigures{Get: like(standard.Get, 16.3), Put: like(standard.Put, 12.0)}
	f.Get.Request, f.Get.Note = "GET of 64 KiB", "the mean was read, and no growth up to 1 MiB; the tail is S3 Standard's, stretched"
	f.Put.Request, f.Put.Note = "PUT of 64 KiB", "the mean was read, and that of 1 MiB; the tail is S3 Standard's, stretched"
	f.Put.PerSecond = perSecond
	return f
}
