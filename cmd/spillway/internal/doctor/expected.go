package doctor

import "time"

// Expected is what a function is deployed with. docs/aws.md says the same; a test compares.
type Expected struct {
	// Timeout is the least.
	Timeout time.Duration
	// Rate is its schedule; empty for none.
	Rate string
	// Rights are what it may do.
	Rights []Right
}

// Right is what a function may do with one resource: "table", "bucket", a prefix of objects as "batches/*",
// or "its log".
type Right struct {
	On      string
	Actions []string
}

// All lists the functions.
func All() []Function { return []Function{Produce, Consume, Leader, Compactor} }

// Answering lists those that answer calls of the API.
func Answering() []Function { return []Function{Produce, Consume, Leader} }

// Scheduled lists those that have a schedule.
func Scheduled() []Function { return []Function{Leader, Compactor} }

// ExpectedOf gives what f is deployed with.
func ExpectedOf(f Function) Expected {
	const (
		get, query, put = "dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem"
		update, remove  = "dynamodb:UpdateItem", "dynamodb:DeleteItem"
		condition       = "dynamodb:ConditionCheckItem"
		several         = "dynamodb:BatchGetItem"
		fetch, store    = "s3:GetObject", "s3:PutObject"
		discard         = "s3:DeleteObject"
	)
	list := Right{"bucket", []string{"s3:ListBucket"}}
	wake := Right{"leader", []string{"lambda:InvokeFunction"}}
	log := Right{"its log", []string{"logs:CreateLogStream", "logs:PutLogEvents"}}
	switch f {
	case Produce:
		return Expected{29 * time.Second, "", []Right{
			{"table", []string{get, query, put, update, condition}},
			list,
			{"batches/*", []string{store, fetch}},
			{"uploads/*", []string{store, fetch}},
			wake,
			log,
		}}
	case Consume:
		return Expected{29 * time.Second, "", []Right{
			{"table", []string{get, query, put, update, remove, condition}},
			list,
			{"batches/*", []string{fetch}},
			{"uploads/*", []string{fetch}},
			{"segments/*", []string{fetch}},
			wake,
			log,
		}}
	case Leader:
		return Expected{55 * time.Second, "rate(1 minute)", []Right{{"table", []string{get, several, query, put, update, remove}}, log}}
	case Compactor:
		return Expected{270 * time.Second, "rate(5 minutes)", []Right{
			{"table", []string{get, query, put, update, remove, condition}},
			list,
			{"batches/*", []string{fetch, discard}},
			{"uploads/*", []string{fetch, discard}},
			{"segments/*", []string{fetch, store, discard, "s3:AbortMultipartUpload"}},
			log,
		}}
	}
	return Expected{}
}

// Alarms lists the alarms of a deployment.
func Alarms() []string {
	return []string{
		"OldestMessageTooOld", "LeaderNotRun", "ApiErrors", "TableReadsThrottled", "TableWritesThrottled",
		"ProduceErrors", "ConsumeErrors", "LeaderErrors", "CompactorErrors",
		"ProduceThrottled", "ConsumeThrottled", "LeaderThrottled", "CompactorThrottled",
	}
}
