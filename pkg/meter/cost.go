package meter

import "fmt"

// Prices are US dollars for a million units or requests each.
type Prices struct {
	ReadUnits  float64 `json:"read_units"`
	WriteUnits float64 `json:"write_units"`
	Gets       float64 `json:"gets"`
	Puts       float64 `json:"puts"`
}

// USEast1 are the list prices of region us-east-1 as of November 2026, for DynamoDB's standard table
// class on demand (https://aws.amazon.com/dynamodb/pricing/on-demand/) and S3 Standard
// (https://aws.amazon.com/s3/pricing/).
func USEast1() Prices {
	return Prices{ReadUnits: 0.125, WriteUnits: 0.625, Gets: 0.40, Puts: 5.00}
}

// Cost is in US dollars, by what it is charged for.
type Cost struct {
	ReadUnits  float64 `json:"read_units"`
	WriteUnits float64 `json:"write_units"`
	Gets       float64 `json:"gets"`
	Puts       float64 `json:"puts"`
	Total      float64 `json:"total"`
}

// Cost is what the counts of s cost by those prices.
func (s Snapshot) Cost(prices Prices) Cost { return s.Total().Cost(prices) }

// Cost is what the counts of r cost by those prices.
func (r Row) Cost(prices Prices) Cost {
	const million = 1e6
	c := Cost{
		ReadUnits:  float64(r.ReadUnits) * prices.ReadUnits / million,
		WriteUnits: float64(r.WriteUnits) * prices.WriteUnits / million,
		Gets:       float64(r.Gets) * prices.Gets / million,
		Puts:       float64(r.Puts) * prices.Puts / million,
	}
	c.Total = c.ReadUnits + c.WriteUnits + c.Gets + c.Puts
	return c
}

// String renders the total and its parts in millionths of a dollar, the size of one request's cost.
func (c Cost) String() string {
	const micro = 1e6
	return fmt.Sprintf("%.3f µ$ (reads %.3f, writes %.3f, gets %.3f, puts %.3f)",
		c.Total*micro, c.ReadUnits*micro, c.WriteUnits*micro, c.Gets*micro, c.Puts*micro)
}
