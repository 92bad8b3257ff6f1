package doctor_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const policy = `{"Version":"2012-10-17","Statement":[{"Action":"s3:*","Condition":{"Bool":{"aws:SecureTransport":"false"}},"Effect":"Deny",` +
	`"Principal":{"AWS":"*"},"Resource":["arn:aws:s3:::bucket","arn:aws:s3:::bucket/*"]}]}`

func fact[T any](v T) doctor.Fact[T] { return doctor.Fact[T]{Value: v} }

func trouble[T any](kind doctor.TroubleKind, text string) doctor.Fact[T] {
	return doctor.Fact[T]{Trouble: &doctor.Trouble{Kind: kind, Text: text}}
}

// healthy are the facts of a deployment as it should be.
func healthy() *doctor.Facts {
	f := &doctor.Facts{
		Now: now, Program: "v0.0.0-20261130101112-0123456789ab", Region: "eu-west-1",
		Caller: fact(doctor.Caller{Account: "1", ARN: "arn:aws:iam::1:user/u"}),
		Skew:   fact(2 * time.Second),
		Stack:  fact(doctor.Stack{Name: "Spillway", Status: "UPDATE_COMPLETE", Version: "v1.2-3-g0123456", Changed: now.Add(-time.Hour)}),
		API:    doctor.API{URL: "https://x.example", Same: fact(true), Answers: map[doctor.Function]doctor.Fact[string]{}},

		TableName: "table", Table: fact(doctor.Table{Keys: "pk:S HASH, sk:S RANGE", Status: "ACTIVE", OnDemand: true, DeletionProtection: true}),
		TTL: fact("ttl"), Backups: fact(true),
		BucketName: "bucket", Bucket: fact(struct{}{}), Blocked: fact(true), Encryption: fact("AES256"), Policy: fact(policy),
		Lifecycle: fact([]doctor.Rule{{ID: "abort", Enabled: true, AbortDays: 1}}),
		LeaderRan: fact(now.Add(-time.Minute)), Invoke: fact(true),
		Functions: map[doctor.Function]doctor.Fact[doctor.Lambda]{}, Schedules: map[doctor.Function]doctor.Fact[doctor.Schedule]{},
		Refused: map[doctor.Function]doctor.Fact[[]doctor.Permission]{},
	}
	for _, fn := range doctor.All() {
		want := doctor.ExpectedOf(fn)
		f.Functions[fn] = fact(doctor.Lambda{
			Name: string(fn), ARN: "arn:" + string(fn), Role: "role-" + string(fn), State: "Active", LastUpdate: "Successful",
			Runtime: "provided.al2023", Arch: "arm64", Timeout: want.Timeout, Table: "table", Bucket: "bucket",
		})
		f.Refused[fn] = fact([]doctor.Permission(nil))
		if want.Rate != "" {
			f.Schedules[fn] = fact(doctor.Schedule{
				Name: string(fn), State: "ENABLED", Rate: want.Rate, Target: "arn:" + string(fn), Input: `{"source":"aws.scheduler"}`,
			})
		} else {
			f.API.Answers[fn] = fact("")
		}
	}
	f.API.Answers[doctor.Leader] = fact("")
	alarms := map[string]doctor.Alarm{}
	for _, id := range doctor.Alarms() {
		alarms[id] = doctor.Alarm{Name: id, State: "OK", ActionsOn: true}
	}
	f.Alarms = fact(alarms)
	return f
}

func TestHealthy(t *testing.T) {
	t.Parallel()
	list := doctor.Examine(healthy())
	for _, f := range list {
		if f.Status != doctor.OK || f.Fix != "" || f.Message == "" {
			t.Errorf("%+v", f)
		}
	}
	if len(list) < 30 {
		t.Errorf("%d findings", len(list))
	}
}

// edit changes one function's facts.
func edit(fn doctor.Function, change func(*doctor.Lambda)) func(*doctor.Facts) {
	return func(f *doctor.Facts) {
		l := f.Functions[fn]
		change(&l.Value)
		f.Functions[fn] = l
	}
}

// reschedule changes one schedule's facts.
func reschedule(fn doctor.Function, change func(*doctor.Schedule)) func(*doctor.Facts) {
	return func(f *doctor.Facts) {
		s := f.Schedules[fn]
		change(&s.Value)
		f.Schedules[fn] = s
	}
}

// TestBroken: each thing that can be wrong gives just the findings that are listed, besides what is ok.
func TestBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(*doctor.Facts)
		want   string // "status check", by commas, in order
		says   string // in a message or fix
	}{
		"no credentials":      {func(f *doctor.Facts) { f.Caller = trouble[doctor.Caller](doctor.Unasked, "set AWS_PROFILE") }, "fail caller", "set AWS_PROFILE"},
		"expired credentials": {func(f *doctor.Facts) { f.Caller = trouble[doctor.Caller](doctor.Denied, "ExpiredToken") }, "fail caller", "ExpiredToken"},
		"clock a bit behind":  {func(f *doctor.Facts) { f.Skew = fact(40 * time.Second) }, "warn clock", "40s behind"},
		"clock ahead":         {func(f *doctor.Facts) { f.Skew = fact(-time.Hour) }, "fail clock", "1h0m0s ahead"},
		"no clock":            {func(f *doctor.Facts) { f.Skew = trouble[time.Duration](doctor.Failed, "no date") }, "unknown clock", "no date"},

		"no stack":            {func(f *doctor.Facts) { f.Stack = trouble[doctor.Stack](doctor.Absent, "") }, "fail stack, unknown version", "--stack"},
		"no stack named":      {func(f *doctor.Facts) { f.Stack = trouble[doctor.Stack](doctor.Unasked, "give --stack") }, "unknown stack, unknown version", "give --stack"},
		"stack changing":      {func(f *doctor.Facts) { f.Stack.Value.Status = "UPDATE_IN_PROGRESS" }, "warn stack", "wait"},
		"stack failed":        {func(f *doctor.Facts) { f.Stack.Value.Status = "UPDATE_ROLLBACK_COMPLETE" }, "fail stack", "describe-stack-events"},
		"stack undeletable":   {func(f *doctor.Facts) { f.Stack.Value.Status = "DELETE_FAILED" }, "fail stack", "DELETE_FAILED"},
		"other version":       {func(f *doctor.Facts) { f.Stack.Value.Version = "v1.1" }, "warn version", "v1.1"},
		"unknown version":     {func(f *doctor.Facts) { f.Stack.Value.Version = "devel" }, "unknown version", "devel"},
		"other API":           {func(f *doctor.Facts) { f.API.Same = fact(false) }, "warn api.document", ""},
		"function in trouble": {func(f *doctor.Facts) { f.API.Answers[doctor.Consume] = fact("corrupt") }, "fail api.consume", "corrupt"},
		"API refuses": {func(f *doctor.Facts) {
			f.API.Answers[doctor.Produce] = trouble[string](doctor.Denied, "Forbidden")
			f.Invoke = fact(false)
		}, "fail api.produce, fail rights.caller", "execute-api:Invoke"},
		"API is not there": {func(f *doctor.Facts) { f.API.Answers[doctor.Leader] = trouble[string](doctor.Failed, "no such host") }, "fail api.leader", "no such host"},
		"no URL": {func(f *doctor.Facts) {
			for fn := range f.API.Answers {
				f.API.Answers[fn] = trouble[string](doctor.Unasked, "give --endpoint")
			}
			f.API.Same = trouble[bool](doctor.Unasked, "give --endpoint")
		}, "unknown api.produce, unknown api.consume, unknown api.leader, unknown api.document", "give --endpoint"},

		"no table":         {func(f *doctor.Facts) { f.Table = trouble[doctor.Table](doctor.Absent, "") }, "fail table", "does not exist"},
		"table in secret":  {func(f *doctor.Facts) { f.Table = trouble[doctor.Table](doctor.Denied, "") }, "unknown table", "dynamodb:DescribeTable"},
		"table archived":   {func(f *doctor.Facts) { f.Table.Value.Status = "ARCHIVING" }, "fail table", "ARCHIVING"},
		"other table":      {func(f *doctor.Facts) { f.Table.Value.Keys = "id:S HASH" }, "fail table.keys", "id:S HASH"},
		"provisioned":      {func(f *doctor.Facts) { f.Table.Value.OnDemand = false }, "warn table.billing", "PAY_PER_REQUEST"},
		"not protected":    {func(f *doctor.Facts) { f.Table.Value.DeletionProtection = false }, "warn table.protection", "--deletion-protection-enabled"},
		"TTL off":          {func(f *doctor.Facts) { f.TTL = fact("") }, "fail table.ttl", "update-time-to-live --table-name table"},
		"TTL elsewhere":    {func(f *doctor.Facts) { f.TTL = fact("expires") }, "fail table.ttl", `"expires"`},
		"TTL in secret":    {func(f *doctor.Facts) { f.TTL = trouble[string](doctor.Denied, "") }, "unknown table.ttl", "dynamodb:DescribeTimeToLive"},
		"no recovery":      {func(f *doctor.Facts) { f.Backups = fact(false) }, "warn table.recovery", "PointInTimeRecoveryEnabled=true"},
		"no bucket":        {func(f *doctor.Facts) { f.Bucket = trouble[struct{}](doctor.Absent, "") }, "fail bucket", "does not exist"},
		"bucket in secret": {func(f *doctor.Facts) { f.Bucket = trouble[struct{}](doctor.Denied, "") }, "unknown bucket", "s3:ListBucket"},
		"public":           {func(f *doctor.Facts) { f.Blocked = fact(false) }, "fail bucket.public", "put-public-access-block"},
		"no block":         {func(f *doctor.Facts) { f.Blocked = trouble[bool](doctor.Absent, "") }, "fail bucket.public", "put-public-access-block"},
		"no encryption":    {func(f *doctor.Facts) { f.Encryption = trouble[string](doctor.Absent, "") }, "warn bucket.encryption", ""},
		"a key of KMS":     {func(f *doctor.Facts) { f.Encryption = fact("aws:kms") }, "warn bucket.encryption", "KMS"},
		"no policy":        {func(f *doctor.Facts) { f.Policy = trouble[string](doctor.Absent, "") }, "warn bucket.tls", "plain HTTP"},
		"policy in secret": {func(f *doctor.Facts) { f.Policy = trouble[string](doctor.Denied, "") }, "unknown bucket.tls", "s3:GetBucketPolicy"},
		"no rules":         {func(f *doctor.Facts) { f.Lifecycle = trouble[[]doctor.Rule](doctor.Absent, "") }, "warn bucket.lifecycle", "incomplete"},
		"rule is off":      {func(f *doctor.Facts) { f.Lifecycle.Value[0].Enabled = false }, "warn bucket.lifecycle", "incomplete"},
		"a rule that deletes messages": {func(f *doctor.Facts) {
			f.Lifecycle.Value = append(f.Lifecycle.Value, doctor.Rule{ID: "tidy", Enabled: true, ExpireDays: 7})
		}, "fail bucket.lifecycle", `"tidy"`},
		"a rule that deletes uploads": {func(f *doctor.Facts) {
			f.Lifecycle.Value = append(f.Lifecycle.Value, doctor.Rule{ID: "u", Prefix: "uploads/", Enabled: true, ExpireDays: 400})
		}, "warn bucket.lifecycle", "400 days"},

		"no function":                 {func(f *doctor.Facts) { f.Functions[doctor.Produce] = trouble[doctor.Lambda](doctor.Absent, "") }, "fail function.produce", "make deploy"},
		"function in secret":          {func(f *doctor.Facts) { f.Functions[doctor.Leader] = trouble[doctor.Lambda](doctor.Denied, "") }, "unknown function.leader", "lambda:GetFunctionConfiguration"},
		"function inactive":           {edit(doctor.Consume, func(l *doctor.Lambda) { l.State, l.StateReason = "Failed", "KMS" }), "fail function.consume", "KMS"},
		"update failed":               {edit(doctor.Consume, func(l *doctor.Lambda) { l.LastUpdate = "Failed" }), "fail function.consume", "update"},
		"update goes on":              {edit(doctor.Consume, func(l *doctor.Lambda) { l.LastUpdate = "InProgress" }), "warn function.consume", "wait"},
		"being made":                  {edit(doctor.Consume, func(l *doctor.Lambda) { l.State = "Pending" }), "warn function.consume", "wait"},
		"other table's":               {edit(doctor.Leader, func(l *doctor.Lambda) { l.Table = "old" }), "fail function.leader", `"old"`},
		"other bucket's":              {edit(doctor.Compactor, func(l *doctor.Lambda) { l.Bucket = "old" }), "fail function.compactor", `"old"`},
		"other runtime":               {edit(doctor.Compactor, func(l *doctor.Lambda) { l.Runtime = "nodejs22.x" }), "fail function.compactor", "nodejs22.x"},
		"too little time":             {edit(doctor.Compactor, func(l *doctor.Lambda) { l.Timeout = 3 * time.Second }), "warn function.compactor", "3s"},
		"more time than callers wait": {edit(doctor.Produce, func(l *doctor.Lambda) { l.Timeout = time.Minute }), "warn function.produce", "30s"},
		"more time for the leader":    {edit(doctor.Leader, func(l *doctor.Lambda) { l.Timeout = time.Minute }), "", ""},
		"architectures mixed":         {edit(doctor.Leader, func(l *doctor.Lambda) { l.Arch = "x86_64" }), "warn functions.architecture", ""},

		"no schedule":       {func(f *doctor.Facts) { f.Schedules[doctor.Leader] = trouble[doctor.Schedule](doctor.Absent, "") }, "fail schedule.leader", "make deploy"},
		"schedule disabled": {reschedule(doctor.Leader, func(s *doctor.Schedule) { s.State = "DISABLED" }), "fail schedule.leader", "disabled"},
		"schedule too rare": {reschedule(doctor.Compactor, func(s *doctor.Schedule) { s.Rate = "rate(1 day)" }), "warn schedule.compactor", "rate(5 minutes)"},
		"schedule astray":   {reschedule(doctor.Compactor, func(s *doctor.Schedule) { s.Target = "arn:other" }), "fail schedule.compactor", "arn:other"},
		"schedule not told": {reschedule(doctor.Leader, func(s *doctor.Schedule) { s.Input = "{}" }), "fail schedule.leader", "input"},
		"leader never ran":  {func(f *doctor.Facts) { f.LeaderRan = fact(time.Time{}) }, "fail leader.ran", "15m0s"},
		"leader is new": {func(f *doctor.Facts) {
			f.LeaderRan, f.Stack.Value.Changed = fact(time.Time{}), now.Add(-time.Minute)
		}, "warn leader.ran", "again"},
		"leader stopped":    {func(f *doctor.Facts) { f.LeaderRan = fact(now.Add(-8 * time.Minute)) }, "fail leader.ran", "8m0s ago"},
		"leader has no log": {func(f *doctor.Facts) { f.LeaderRan = trouble[time.Time](doctor.Absent, "") }, "fail leader.ran", "never"},
		"log in secret":     {func(f *doctor.Facts) { f.LeaderRan = trouble[time.Time](doctor.Denied, "") }, "unknown leader.ran", "logs:FilterLogEvents"},
		"no alarms":         {func(f *doctor.Facts) { f.Alarms = fact(map[string]doctor.Alarm{}) }, "warn alarms", "LeaderNotRun"},
		"an alarm is on":    {func(f *doctor.Facts) { f.Alarms.Value["ApiErrors"] = doctor.Alarm{State: "ALARM", ActionsOn: true} }, "warn alarms.on", "ApiErrors"},
		"an alarm is mute":  {func(f *doctor.Facts) { f.Alarms.Value["ApiErrors"] = doctor.Alarm{State: "OK"} }, "warn alarms.actions", "ApiErrors"},
		"alarms in secret":  {func(f *doctor.Facts) { f.Alarms = trouble[map[string]doctor.Alarm](doctor.Denied, "") }, "unknown alarms", "cloudwatch:DescribeAlarms"},

		"rights in secret": {func(f *doctor.Facts) { f.Refused[doctor.Leader] = trouble[[]doctor.Permission](doctor.Denied, "") }, "unknown rights.leader", "iam:SimulatePrincipalPolicy"},
		"rights missing": {func(f *doctor.Facts) {
			f.Refused[doctor.Compactor] = fact([]doctor.Permission{{"s3:DeleteObject", "arn:x"}, {"s3:GetObject", "arn:x"}})
		}, "fail rights.compactor", "may not s3:DeleteObject on arn:x, and 1 more"},
		"an outage": {func(f *doctor.Facts) { f.Backups = trouble[bool](doctor.Failed, "timeout") }, "unknown table.recovery", "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := healthy()
			c.breaks(f)
			var got []string
			text := ""
			for _, found := range doctor.Examine(f) {
				if strings.ContainsAny(found.Message+found.Fix, "\n\r") {
					t.Errorf("more than a line: %+v", found)
				}
				if found.Status == doctor.OK {
					continue
				}
				if found.Fix == "" {
					t.Errorf("says nothing to do: %+v", found)
				}
				got = append(got, string(found.Status)+" "+found.Check)
				text += found.Message + " " + found.Fix + "\n"
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("findings %v, want %s", got, c.want)
			}
			if !strings.Contains(text, c.says) {
				t.Errorf("does not say %q:\n%s", c.says, text)
			}
		})
	}
}

// TestNothingKnown: without any fact nothing is ok.
func TestNothingKnown(t *testing.T) {
	t.Parallel()
	f := &doctor.Facts{Now: now}
	none := &doctor.Trouble{Kind: doctor.Failed, Text: "unplugged"}
	f.Caller.Trouble, f.Skew.Trouble, f.Stack.Trouble, f.API.Same.Trouble, f.Table.Trouble, f.Bucket.Trouble = none, none, none, none, none, none
	f.LeaderRan.Trouble, f.Alarms.Trouble, f.Invoke.Trouble = none, none, none
	f.API.Answers, f.Functions = map[doctor.Function]doctor.Fact[string]{}, map[doctor.Function]doctor.Fact[doctor.Lambda]{}
	f.Schedules, f.Refused = map[doctor.Function]doctor.Fact[doctor.Schedule]{}, map[doctor.Function]doctor.Fact[[]doctor.Permission]{}
	for _, fn := range doctor.All() {
		f.API.Answers[fn], f.Functions[fn] = doctor.Fact[string]{Trouble: none}, doctor.Fact[doctor.Lambda]{Trouble: none}
		f.Schedules[fn], f.Refused[fn] = doctor.Fact[doctor.Schedule]{Trouble: none}, doctor.Fact[[]doctor.Permission]{Trouble: none}
	}
	if list := doctor.Examine(f); slices.ContainsFunc(list, func(f doctor.Finding) bool { return f.Status == doctor.OK }) {
		t.Errorf("%+v", list)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy string
		ok     bool
	}{
		"the CDK's":                    {policy, true},
		"one string each":              {`{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bucket/*","Condition":{"Bool":{"aws:SecureTransport":false}}}]}`, true},
		"another bucket's":             {strings.ReplaceAll(policy, ":::bucket", ":::other"), false},
		"allows":                       {strings.ReplaceAll(policy, "Deny", "Allow"), false},
		"for someone":                  {strings.ReplaceAll(policy, `{"AWS":"*"}`, `{"AWS":"arn:aws:iam::1:root"}`), false},
		"for one action":               {strings.ReplaceAll(policy, "s3:*", "s3:GetObject"), false},
		"the other way round":          {strings.ReplaceAll(policy, `"false"`, `"true"`), false},
		"under one more condition":     {strings.ReplaceAll(policy, `"Bool":{`, `"Bool":{"aws:ViaAWSService":"true",`), false},
		"under a condition of its own": {strings.ReplaceAll(policy, `"Condition":{`, `"Condition":{"StringEquals":{"a":"b"},`), false},
		"no JSON":                      {"{", false},
		"odd JSON":                     {`{"Statement":[{"Action":{"a":1}}]}`, false},
	} {
		f := healthy()
		f.Policy = fact(c.policy)
		for _, found := range doctor.Examine(f) {
			if found.Check == "bucket.tls" && (found.Status == doctor.OK) != c.ok {
				t.Errorf("%s: %+v", name, found)
			}
		}
	}
}

func TestSameVersion(t *testing.T) {
	t.Parallel()
	const pseudo = "v0.0.0-20261130101112-0123456789ab"
	for _, c := range []struct {
		deployed, program string
		same              bool
	}{
		{"v1.2.3", "v1.2.3", true},
		{"0123456", pseudo, true},
		{"v1.2-14-g0123456", pseudo, true},
		{"0123456789abcdef0123456789abcdef01234567", pseudo, true},
		{"0123457", pseudo, false},
		{"012", pseudo, false},
		{"v1.2.3", "v1.2.4", false},
		{"v1.2.3", pseudo, false},
		{"0123456-dirty", pseudo, false},
		{"0123456", pseudo + "+dirty", false},
		{"", pseudo, false},
		{"0123456", "", false},
	} {
		if got := doctor.SameVersion(c.deployed, c.program); got != c.same {
			t.Errorf("%q, %q: %v", c.deployed, c.program, got)
		}
	}
}
