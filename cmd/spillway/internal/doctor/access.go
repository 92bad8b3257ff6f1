package doctor

import (
	"fmt"
	"strings"
	"time"
)

// again is what to do about most of what is not as it was deployed.
const again = "deploy again: make deploy"

func checkCaller(f *Facts) []Finding {
	c := check{"caller", ""}
	if t := f.Caller.Trouble; t != nil {
		if t.Kind == Unasked {
			return []Finding{c.bad(Fail, t.Text, "there are no AWS credentials")}
		}
		return []Finding{c.bad(Fail, "see what is wrong with: aws sts get-caller-identity", "AWS does not take your credentials: %s", t.Text)}
	}
	return []Finding{c.ok("you are %s in %s", f.Caller.Value.ARN, f.Region)}
}

const (
	// skewWarn is well above what a clock that is kept right is off; a Date is in whole seconds.
	skewWarn = 30 * time.Second
	// skewFail is where AWS refuses signatures.
	skewFail = 5 * time.Minute
)

func checkClock(f *Facts) []Finding {
	c := check{"clock", ""}
	if t := f.Skew.Trouble; t != nil {
		return []Finding{c.unseen(t, "sts:GetCallerIdentity", "")}
	}
	const fix = "set this machine's clock, as with: timedatectl set-ntp true"
	skew := f.Skew.Value
	word := "behind"
	if skew < 0 {
		word = "ahead"
	}
	off := fmt.Sprintf("this machine's clock is %s %s", skew.Abs().Round(time.Second), word)
	switch {
	case skew.Abs() >= skewFail:
		return []Finding{c.bad(Fail, fix, "%s; AWS refuses what is signed by it", off)}
	case skew.Abs() >= skewWarn:
		return []Finding{c.bad(Warn, fix, "%s; at 5 minutes AWS refuses what is signed by it", off)}
	}
	return []Finding{c.ok("right to %s", skewWarn)}
}

func checkStack(f *Facts) []Finding {
	s := f.Stack.Value
	c := check{"stack", s.Name}
	if t := f.Stack.Trouble; t != nil {
		return []Finding{c.unseen(t, "cloudformation:DescribeStacks", "name yours with --stack, its region with --region, or deploy one: make deploy")}
	}
	switch {
	case strings.HasSuffix(s.Status, "_IN_PROGRESS"):
		return []Finding{c.bad(Warn, "wait until it is done, and run this again", "is being changed: %s", s.Status)}
	case strings.HasSuffix(s.Status, "FAILED") || strings.Contains(s.Status, "ROLLBACK"):
		return []Finding{c.bad(Fail, "see its events: aws cloudformation describe-stack-events --stack-name "+s.Name, "its last change did not succeed: %s", s.Status)}
	}
	return []Finding{c.ok("%s", s.Status)}
}

func checkAPI(f *Facts) []Finding {
	var out []Finding
	for _, fn := range Answering() {
		c := check{"api." + string(fn), f.API.URL}
		answer := f.API.Answers[fn]
		switch t := answer.Trouble; {
		case t == nil && answer.Value == "":
			out = append(out, c.ok("answers"))
		case t == nil:
			out = append(out, c.bad(Fail, fmt.Sprintf("see the log of the function %s", fn), "answers, but: %s", answer.Value))
		case t.Kind == Denied:
			out = append(out, c.bad(Fail, "allow the caller execute-api:Invoke on the API; with tokens: --auth token --token-file FILE", "refuses you: %s", t.Text))
		case t.Kind == Unasked:
			out = append(out, c.unseen(t, "", ""))
		default:
			out = append(out, c.bad(Fail, "see that the URL is right and can be reached", "does not answer: %s", t.Text))
		}
	}
	return append(out, checkInvoke(f))
}

func checkInvoke(f *Facts) Finding {
	c := check{"rights.caller", f.Caller.Value.ARN}
	switch t := f.Invoke.Trouble; {
	case t != nil:
		return c.unseen(t, "iam:SimulatePrincipalPolicy", "")
	case !f.Invoke.Value:
		return c.bad(Fail, "allow the caller execute-api:Invoke on the API", "IAM does not let you call the API")
	}
	return c.ok("IAM lets you call the API")
}

func checkVersion(f *Facts) []Finding {
	out := []Finding{sameDocument(f)}
	c := check{"version", ""}
	deployed := f.Stack.Value.Version
	switch {
	case f.Stack.Trouble != nil && f.Stack.Trouble.Kind == Absent:
		return append(out, c.bad(Unknown, "see stack", "not looked at"))
	case f.Stack.Trouble != nil:
		return append(out, c.unseen(f.Stack.Trouble, "cloudformation:DescribeStacks", ""))
	case deployed == "" || deployed == "devel" || f.Program == "devel":
		return append(out, c.bad(Unknown, "build both from one commit of a git repository", "deployed is %q, this program is %q", deployed, f.Program))
	case SameVersion(deployed, f.Program):
		return append(out, c.ok("deployed is %s, as this program", deployed))
	}
	return append(out, c.bad(Warn, "deploy this program's version, or use the program of that version", "deployed is %s, this program is %s", deployed, f.Program))
}

func sameDocument(f *Facts) Finding {
	c := check{"api.document", f.API.URL}
	switch t := f.API.Same.Trouble; {
	case t != nil && t.Kind == Denied:
		return c.bad(Unknown, "see api.leader", "the API refuses you")
	case t != nil:
		return c.unseen(t, "execute-api:Invoke", "")
	case !f.API.Same.Value:
		return c.bad(Warn, "deploy this program's version, or use the program of that version", "the API describes itself otherwise than this program knows it")
	}
	return c.ok("the API is the one that this program knows")
}

// shortCommit is how many characters of a commit git describe shows at least.
const shortCommit = 7

// SameVersion reports whether two versions name the same source: they are equal, or the one is what git
// describe says of a commit that the other, Go's pseudo-version, has.
func SameVersion(deployed, program string) bool {
	if deployed == program {
		return true
	}
	commit := strings.TrimSuffix(deployed, "-dirty")
	dirty := commit != deployed
	pseudo, changed := strings.CutSuffix(program, "+dirty")
	if dirty || changed {
		return false // what was changed is not known
	}
	if i := strings.LastIndex(commit, "-g"); i >= 0 {
		commit = commit[i+2:]
	}
	i := strings.LastIndex(pseudo, "-")
	return i >= 0 && len(commit) >= shortCommit && strings.HasPrefix(pseudo[i+1:], commit[:min(len(commit), len(pseudo)-i-1)])
}
