package doctor

import "time"

// TroubleKind says why a fact has no value.
type TroubleKind int

// The kinds of trouble.
const (
	// Failed: the call that asks went wrong.
	Failed TroubleKind = iota
	// Absent: what was asked about does not exist.
	Absent
	// Denied: the caller may not ask.
	Denied
	// Unasked: it cannot be asked, for want of a name; Text says which.
	Unasked
)

// Trouble is why a fact has no value.
type Trouble struct {
	Kind TroubleKind
	// Text is one line.
	Text string
}

// Fact is something found out, or why it was not: Trouble is nil if Value holds.
type Fact[T any] struct {
	Value   T
	Trouble *Trouble
}

// Function names one of the functions of a deployment.
type Function string

// The functions.
const (
	Produce   Function = "produce"
	Consume   Function = "consume"
	Leader    Function = "leader"
	Compactor Function = "compactor"
)

// Facts are what is known of a deployment. Maps have an entry for each Function that the fact is about.
type Facts struct {
	// Now is when the facts were found.
	Now time.Time
	// Program is this program's version.
	Program string

	Region string
	Caller Fact[Caller]
	// Skew is what the clock of AWS is ahead of this machine's.
	Skew  Fact[time.Duration]
	Stack Fact[Stack]

	API API

	TableName string
	Table     Fact[Table]
	// TTL is the attribute by which records expire; empty if they do not.
	TTL Fact[string]
	// Backups: point-in-time recovery is on.
	Backups Fact[bool]

	BucketName string
	Bucket     Fact[struct{}]
	// Blocked: the public's access is blocked in all four ways.
	Blocked    Fact[bool]
	Encryption Fact[string]
	Lifecycle  Fact[[]Rule]
	// Policy is the bucket's policy, in JSON.
	Policy Fact[string]

	Functions map[Function]Fact[Lambda]
	Schedules map[Function]Fact[Schedule]
	// LeaderRan is when the leader last told of a scheduled run, within LogWindow of Now; zero if never.
	LeaderRan Fact[time.Time]
	// Alarms are those of the stack, by the ends of their ids in it: "LeaderNotRun".
	Alarms Fact[map[string]Alarm]

	// Refused are the rights that a function lacks.
	Refused map[Function]Fact[[]Permission]
	// Invoke: IAM lets the caller call the API.
	Invoke Fact[bool]
}

// LogWindow is how far back LeaderRan looks.
const LogWindow = 15 * time.Minute

// Caller is who calls.
type Caller struct{ Account, ARN string }

// Stack is the CloudFormation stack.
type Stack struct {
	Name, Status string
	// Version is what the stack says that it was deployed from.
	Version string
	// Changed is when it was last deployed.
	Changed time.Time
}

// API is what the API answers.
type API struct {
	URL string
	// Same: it serves the same OpenAPI document as this program has.
	Same Fact[bool]
	// Answers are those of a function behind the API: the answer's error, empty if it is as it should be.
	Answers map[Function]Fact[string]
}

// Table is the table.
type Table struct {
	// Keys are "pk:S HASH, sk:S RANGE" in a good one.
	Keys               string
	Status             string
	OnDemand           bool
	DeletionProtection bool
}

// Rule is a rule of the bucket's lifecycle.
type Rule struct {
	ID, Prefix string
	Enabled    bool
	// ExpireDays deletes objects, AbortDays incomplete uploads; 0 if it does not.
	ExpireDays, AbortDays int
}

// Lambda is a function.
type Lambda struct {
	Name, ARN, Role    string
	State, StateReason string
	LastUpdate         string
	Runtime, Arch      string
	Timeout            time.Duration
	LogGroup           string
	Table, Bucket      string
}

// Schedule is a schedule.
type Schedule struct {
	Name, State, Rate string
	Target, Input     string
}

// Alarm is an alarm.
type Alarm struct {
	Name, State string
	// ActionsOn: it may tell someone.
	ActionsOn bool
}

// Permission is a right that is missing.
type Permission struct{ Action, Resource string }
