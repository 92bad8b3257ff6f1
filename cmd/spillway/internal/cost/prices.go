package cost

// Price is one public price.
type Price struct {
	USD float64 `json:"usd"`
	Per string  `json:"per"`
	// Source is the page that tells it, Checked what was seen of it when the table was last gone over.
	Source  string `json:"source"`
	Checked string `json:"checked"`
}

// Region and Date are where and when the prices are of.
const (
	Region = "us-east-1"
	Date   = "November 2026"
)

// How well a price is known. No live price page could be read when the table was made: what is there to
// check against are stored copies of pages.
const (
	notes    = "design notes of this project"
	seen     = "stored pages of 2026 say the same"
	unseen   = "NOT verified: from memory of the price page, no stored copy tells it"
	disputed = "NOT verified: from memory of the price page; one stored page of a third party tells another figure"
)

// Prices are all prices that the model uses. US dollars.
type Prices struct {
	APIRequest    Price `json:"api_request"`
	LambdaRequest Price `json:"lambda_request"`
	LambdaGBs     Price `json:"lambda_gb_second"`
	WriteUnit     Price `json:"dynamodb_write_unit"`
	ReadUnit      Price `json:"dynamodb_read_unit"`
	TableGB       Price `json:"dynamodb_gb_month"`
	BackupGB      Price `json:"dynamodb_backup_gb_month"`
	S3Put         Price `json:"s3_put"`
	S3Get         Price `json:"s3_get"`
	S3GB          Price `json:"s3_gb_month"`
	LogGB         Price `json:"log_gb"`
	Schedule      Price `json:"schedule"`
	Metric        Price `json:"metric_month"`
	Alarm         Price `json:"alarm_month"`
	Dashboard     Price `json:"dashboard_month"`

	SQS     Price `json:"sqs_request"`
	SQSFIFO Price `json:"sqs_fifo_request"`

	KinesisIn         Price `json:"kinesis_on_demand_in_gb"`
	KinesisOut        Price `json:"kinesis_on_demand_out_gb"`
	KinesisStreamHour Price `json:"kinesis_on_demand_stream_hour"`
	KinesisShardHour  Price `json:"kinesis_shard_hour"`
	KinesisPutUnit    Price `json:"kinesis_put_unit"`

	MSKServerlessHour Price `json:"msk_serverless_hour"`
	MSKPartitionHour  Price `json:"msk_partition_hour"`
	MSKIn             Price `json:"msk_serverless_in_gb"`
	MSKOut            Price `json:"msk_serverless_out_gb"`
	MSKStorageGB      Price `json:"msk_storage_gb_month"`
	MSKBrokerHour     Price `json:"msk_broker_hour"`
}

// USEast1 is the price table.
func USEast1() Prices {
	const (
		million = "1,000,000"
		lambda  = "https://aws.amazon.com/lambda/pricing/"
		dynamo  = "https://aws.amazon.com/dynamodb/pricing/on-demand/"
		s3      = "https://aws.amazon.com/s3/pricing/"
		watch   = "https://aws.amazon.com/cloudwatch/pricing/"
		kinesis = "https://aws.amazon.com/kinesis/data-streams/pricing/"
		msk     = "https://aws.amazon.com/msk/pricing/"
		sqs     = "https://aws.amazon.com/sqs/pricing/"
	)
	return Prices{
		APIRequest:    Price{1.00, million + " requests of HTTP APIs, of up to 512 KB each", "https://aws.amazon.com/api-gateway/pricing/", seen},
		LambdaRequest: Price{0.20, million + " calls", lambda, notes},
		LambdaGBs:     Price{0.0000133334, "GB-second, arm64", lambda, notes},
		WriteUnit:     Price{0.625, million + " write units, on demand", dynamo, notes},
		ReadUnit:      Price{0.125, million + " read units, on demand", dynamo, notes},
		TableGB:       Price{0.25, "GB-month in the table", dynamo, unseen},
		BackupGB:      Price{0.20, "GB-month of point-in-time recovery", dynamo, unseen},
		S3Put:         Price{5.00, million + " PUT, COPY, POST, LIST", s3, notes},
		S3Get:         Price{0.40, million + " GET, HEAD", s3, notes},
		S3GB:          Price{0.023, "GB-month, S3 Standard", s3, unseen},
		LogGB:         Price{0.50, "GB taken in by CloudWatch Logs", watch, seen},
		Schedule:      Price{1.00, million + " invocations of EventBridge Scheduler", "https://aws.amazon.com/eventbridge/pricing/", seen},
		Metric:        Price{0.30, "metric and month", watch, seen},
		Alarm:         Price{0.10, "alarm and month", watch, seen},
		Dashboard:     Price{3.00, "dashboard and month", watch, seen},

		SQS:     Price{0.40, million + " requests of standard queues, of up to 64 KB each", sqs, seen},
		SQSFIFO: Price{0.50, million + " requests of FIFO queues, of up to 64 KB each", sqs, seen},

		KinesisIn:         Price{0.08, "GB in, on demand", kinesis, disputed},
		KinesisOut:        Price{0.04, "GB out, on demand", kinesis, disputed},
		KinesisStreamHour: Price{0.04, "stream and hour, on demand", kinesis, unseen},
		KinesisShardHour:  Price{0.015, "shard and hour", kinesis, "a stored page of a third party says the same"},
		KinesisPutUnit:    Price{0.014, million + " PUT payload units of 25 KB", kinesis, unseen},

		MSKServerlessHour: Price{0.75, "serverless cluster and hour", msk, unseen},
		MSKPartitionHour:  Price{0.0015, "partition and hour", msk, unseen},
		MSKIn:             Price{0.10, "GB in, serverless", msk, unseen},
		MSKOut:            Price{0.05, "GB out, serverless", msk, unseen},
		MSKStorageGB:      Price{0.10, "GB-month of storage", msk, unseen},
		MSKBrokerHour:     Price{0.0456, "kafka.t3.small broker and hour", msk, unseen},
	}
}

// each lists the prices with a short name, in the order of the struct.
func (p Prices) each() []namedPrice {
	return []namedPrice{
		{"API Gateway", p.APIRequest},
		{"Lambda", p.LambdaRequest},
		{"Lambda", p.LambdaGBs},
		{"DynamoDB", p.WriteUnit},
		{"DynamoDB", p.ReadUnit},
		{"DynamoDB", p.TableGB},
		{"DynamoDB", p.BackupGB},
		{"S3", p.S3Put},
		{"S3", p.S3Get},
		{"S3", p.S3GB},
		{"CloudWatch", p.LogGB},
		{"EventBridge", p.Schedule},
		{"CloudWatch", p.Metric},
		{"CloudWatch", p.Alarm},
		{"CloudWatch", p.Dashboard},
		{"SQS", p.SQS},
		{"SQS", p.SQSFIFO},
		{"Kinesis", p.KinesisIn},
		{"Kinesis", p.KinesisOut},
		{"Kinesis", p.KinesisStreamHour},
		{"Kinesis", p.KinesisShardHour},
		{"Kinesis", p.KinesisPutUnit},
		{"MSK", p.MSKServerlessHour},
		{"MSK", p.MSKPartitionHour},
		{"MSK", p.MSKIn},
		{"MSK", p.MSKOut},
		{"MSK", p.MSKStorageGB},
		{"MSK", p.MSKBrokerHour},
	}
}

type namedPrice struct {
	service string
	Price
}

// million is the number that most prices are per.
const million = 1e6

const (
	hoursPerMonth = 730
	daysPerMonth  = hoursPerMonth / 24.0
	gb            = 1e9
)
