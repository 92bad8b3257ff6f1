package doctor

import (
	"fmt"
	"strings"
	"time"
)

func checkFunctions(f *Facts) []Finding {
	var out []Finding
	arch, mixed := "", false
	for _, fn := range All() {
		out = append(out, checkFunction(f, fn))
		if l := f.Functions[fn]; l.Trouble == nil {
			mixed = mixed || arch != "" && arch != l.Value.Arch
			arch = l.Value.Arch
		}
	}
	c := check{"functions.architecture", ""}
	switch {
	case mixed:
		out = append(out, c.bad(Warn, again, "the functions are of different architectures: they were not deployed together"))
	case arch != "":
		out = append(out, c.ok("%s", arch))
	}
	return out
}

// gatewayPatience is how long an HTTP API waits for a function.
const gatewayPatience = 30 * time.Second

// checkFunction says the worst of a function.
func checkFunction(f *Facts, fn Function) Finding {
	fact := f.Functions[fn]
	l := fact.Value
	c := check{"function." + string(fn), l.Name}
	if fact.Trouble != nil {
		return c.unseen(fact.Trouble, "lambda:GetFunctionConfiguration", again)
	}
	want := ExpectedOf(fn)
	switch {
	case l.State == "Pending" || l.LastUpdate == "InProgress":
		return c.bad(Warn, "wait until it is done, and run this again", "is being updated")
	case l.State != "Active" && l.State != "":
		return c.bad(Fail, "see it in the console; then "+again, "is %s: %s", l.State, l.StateReason)
	case l.LastUpdate == "Failed":
		return c.bad(Fail, again, "its last update failed")
	case l.Table != f.TableName && f.TableName != "":
		return c.bad(Fail, again, "works on the table %q, not on %q", l.Table, f.TableName)
	case l.Bucket != f.BucketName && f.BucketName != "":
		return c.bad(Fail, again, "works on the bucket %q, not on %q", l.Bucket, f.BucketName)
	case !strings.HasPrefix(l.Runtime, "provided."):
		return c.bad(Fail, again, "has the runtime %q, not provided.al2023", l.Runtime)
	case l.Timeout < want.Timeout:
		return c.bad(Warn, again, "is ended after %v; it is made for %v", l.Timeout, want.Timeout)
	case want.Rate == "" && l.Timeout > gatewayPatience:
		return c.bad(Warn, again, "may run for %v, but the API answers its callers after %v", l.Timeout, gatewayPatience)
	}
	return c.ok("active, %s, %v", l.Arch, l.Timeout)
}

func checkSchedules(f *Facts) []Finding {
	var out []Finding
	for _, fn := range Scheduled() {
		fact := f.Schedules[fn]
		s := fact.Value
		c := check{"schedule." + string(fn), s.Name}
		function, known := f.Functions[fn], f.Functions[fn].Trouble == nil
		want := ExpectedOf(fn).Rate
		switch {
		case fact.Trouble != nil:
			out = append(out, c.unseen(fact.Trouble, "scheduler:GetSchedule", again))
		case s.State != "ENABLED":
			out = append(out, c.bad(Fail, "enable it: "+again, "is %s: nobody runs the %s", strings.ToLower(s.State), fn))
		case known && s.Target != function.Value.ARN:
			out = append(out, c.bad(Fail, again, "runs %s, not the %s", s.Target, fn))
		case fn == Leader && !strings.Contains(s.Input, `"aws.scheduler"`):
			out = append(out, c.bad(Fail, again, "its input does not tell the leader that it is a schedule"))
		case s.Rate != want:
			out = append(out, c.bad(Warn, again, "runs at %s, not at %s", s.Rate, want))
		default:
			out = append(out, c.ok("enabled, %s", s.Rate))
		}
	}
	return out
}

// leaderLate is some runs of a schedule of a minute, which is kept to the minute.
const leaderLate = 5 * time.Minute

func checkLeaderRan(f *Facts) []Finding {
	c := check{"leader.ran", ""}
	t := f.LeaderRan.Trouble
	fresh := f.Stack.Trouble == nil && f.Now.Sub(f.Stack.Value.Changed) < leaderLate
	fix := "see schedule.leader, function.leader, and its log"
	switch {
	case t != nil && t.Kind == Absent:
		return []Finding{c.bad(Fail, fix, "it has no log: it never ran")}
	case t != nil:
		return []Finding{c.unseen(t, "logs:FilterLogEvents on the leader's log", "")}
	case f.LeaderRan.Value.IsZero() && fresh:
		return []Finding{c.bad(Warn, "run this again in 2 minutes", "the leader has not run yet; the deployment is new")}
	case f.LeaderRan.Value.IsZero():
		return []Finding{c.bad(Fail, fix, "the schedule has not run the leader for %v", LogWindow)}
	}
	if age := f.Now.Sub(f.LeaderRan.Value); age > leaderLate {
		return []Finding{c.bad(Fail, fix, "the schedule ran the leader last %v ago", age.Round(time.Second))}
	}
	return []Finding{c.ok("at %s", f.LeaderRan.Value.UTC().Format(time.RFC3339))}
}

func checkAlarms(f *Facts) []Finding {
	c := check{"alarms", ""}
	if t := f.Alarms.Trouble; t != nil {
		return []Finding{c.unseen(t, "cloudwatch:DescribeAlarms", "")}
	}
	var missing, silent, on []string
	for _, id := range Alarms() {
		a, ok := f.Alarms.Value[id]
		switch {
		case !ok:
			missing = append(missing, id)
		case a.State == "ALARM":
			on = append(on, id)
		}
		if ok && !a.ActionsOn {
			silent = append(silent, id)
		}
	}
	var out []Finding
	if len(missing) > 0 {
		out = append(out, c.bad(Warn, again, "missing: %s", strings.Join(missing, ", ")))
	} else {
		out = append(out, c.ok("all %d are there", len(Alarms())))
	}
	c.name = "alarms.on"
	if len(on) > 0 {
		out = append(out, c.bad(Warn, "see what each means in docs/aws.md, Alarms", "on now: %s", strings.Join(on, ", ")))
	} else {
		out = append(out, c.ok("none is on"))
	}
	if len(silent) > 0 {
		c.name = "alarms.actions"
		out = append(out, c.bad(Warn, "aws cloudwatch enable-alarm-actions --alarm-names NAME…", "their actions are off: %s", strings.Join(silent, ", ")))
	}
	return out
}

func checkRights(f *Facts) []Finding {
	var out []Finding
	for _, fn := range All() {
		fact := f.Refused[fn]
		c := check{"rights." + string(fn), f.Functions[fn].Value.Role}
		switch {
		case fact.Trouble != nil:
			out = append(out, c.unseen(fact.Trouble, "iam:SimulatePrincipalPolicy", ""))
		case len(fact.Value) > 0:
			first := fact.Value[0]
			more := ""
			if n := len(fact.Value) - 1; n > 0 {
				more = fmt.Sprintf(", and %d more", n)
			}
			out = append(out, c.bad(Fail, again+"; and see what denies it, as a policy of the organization", "may not %s on %s%s", first.Action, first.Resource, more))
		default:
			out = append(out, c.ok("has all its rights"))
		}
	}
	return out
}
