// Package doctor says what is wrong with a deployment in AWS, and what to do about it.
//
// Vocabulary: facts are what was found out about a deployment; a fact that could not be found out has a trouble
// in place of a value; a finding is what one check makes of facts.
//
// Invariants: checks are pure functions of facts, so the same facts give the same findings in the same order.
// What could not be looked at is unknown, and never ok. A finding that is not ok says what to do, on one line.
//
// Non-goals: finding facts (package survey), changing anything.
package doctor

import (
	"fmt"
	"slices"
)

// Status is what a check came to.
type Status string

// The statuses, best first.
const (
	OK Status = "ok"
	// Unknown: it could not be looked at; Fix says what is missing for that.
	Unknown Status = "unknown"
	// Warn: it works, and is not as it should be.
	Warn Status = "warn"
	// Fail: something does not work, or data is at risk.
	Fail Status = "fail"
)

// Finding is what one check came to.
type Finding struct {
	// Check names it, as in "table.ttl".
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Subject is what was looked at, as a table's name; empty where there is just one.
	Subject string `json:"subject,omitempty"`
	// Message says what is so, on one line.
	Message string `json:"message"`
	// Fix says what to do, on one line; empty if Status is OK.
	Fix string `json:"fix,omitempty"`
}

// Examine makes all checks.
func Examine(f *Facts) []Finding {
	return slices.Concat(
		checkCaller(f), checkClock(f), checkStack(f), checkAPI(f), checkVersion(f),
		checkTable(f), checkBucket(f), checkFunctions(f), checkSchedules(f), checkLeaderRan(f), checkAlarms(f), checkRights(f),
	)
}

// Count counts the findings of a status.
func Count(list []Finding, s Status) int {
	n := 0
	for i := range list {
		if list[i].Status == s {
			n++
		}
	}
	return n
}

// check is a check under way: its name and what it looks at.
type check struct{ name, subject string }

func (c check) ok(format string, args ...any) Finding {
	return Finding{Check: c.name, Status: OK, Subject: c.subject, Message: fmt.Sprintf(format, args...)}
}

func (c check) bad(s Status, fix, format string, args ...any) Finding {
	return Finding{Check: c.name, Status: s, Subject: c.subject, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// unseen is the finding of a fact with a trouble. Absent, if not empty, is what to do where the thing does not
// exist, which then is a failure; right is the IAM action that looking takes.
func (c check) unseen(t *Trouble, right, absent string) Finding {
	switch {
	case t.Kind == Absent && absent != "":
		return c.bad(Fail, absent, "does not exist")
	case t.Kind == Denied:
		return c.bad(Unknown, "allow the caller "+right, "you may not look")
	case t.Kind == Unasked:
		return c.bad(Unknown, t.Text, "not looked at")
	}
	return c.bad(Unknown, "run it again; if it goes on, see that AWS can be reached", "could not be looked at: %s", t.Text)
}
