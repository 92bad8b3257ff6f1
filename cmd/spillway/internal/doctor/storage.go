package doctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// tableKeys is what pkg/meta/dynamometa wants.
const tableKeys = "pk:S HASH, sk:S RANGE"

func checkTable(f *Facts) []Finding {
	c := check{"table", f.TableName}
	if t := f.Table.Trouble; t != nil {
		return []Finding{c.unseen(t, "dynamodb:DescribeTable", "see that name and region are right; a table that is gone can be restored from its backup")}
	}
	t := f.Table.Value
	out := make([]Finding, 0, 6)
	if t.Status == "ACTIVE" {
		out = append(out, c.ok("is there, and active"))
	} else {
		out = append(out, c.bad(Fail, "wait until it is active; if it is being archived or its key is gone, see the console", "is %s", t.Status))
	}
	c.name = "table.keys"
	if t.Keys == tableKeys {
		out = append(out, c.ok("%s", t.Keys))
	} else {
		out = append(out, c.bad(Fail, "this is no table of Spillway: name the right one", "its keys are %s, not %s", t.Keys, tableKeys))
	}
	c.name = "table.billing"
	if t.OnDemand {
		out = append(out, c.ok("on demand"))
	} else {
		out = append(out, c.bad(Warn, fmt.Sprintf("aws dynamodb update-table --table-name %s --billing-mode PAY_PER_REQUEST", f.TableName),
			"its capacity is provisioned: a flood is throttled"))
	}
	c.name = "table.protection"
	if t.DeletionProtection {
		out = append(out, c.ok("protected from deletion"))
	} else {
		out = append(out, c.bad(Warn, fmt.Sprintf("aws dynamodb update-table --table-name %s --deletion-protection-enabled", f.TableName),
			"it can be deleted by one call"))
	}
	return append(out, checkTTL(f), checkBackups(f))
}

func checkTTL(f *Facts) Finding {
	c := check{"table.ttl", f.TableName}
	fix := fmt.Sprintf("aws dynamodb update-time-to-live --table-name %s --time-to-live-specification Enabled=true,AttributeName=ttl", f.TableName)
	switch t := f.TTL.Trouble; {
	case t != nil:
		return c.unseen(t, "dynamodb:DescribeTimeToLive", "")
	case f.TTL.Value == "":
		return c.bad(Fail, fix, "records do not expire: the table grows for ever")
	case f.TTL.Value != "ttl":
		return c.bad(Fail, "turn it off, and then: "+fix, "records expire by %q, not by ttl", f.TTL.Value)
	}
	return c.ok("records expire by ttl")
}

func checkBackups(f *Facts) Finding {
	c := check{"table.recovery", f.TableName}
	switch t := f.Backups.Trouble; {
	case t != nil:
		return c.unseen(t, "dynamodb:DescribeContinuousBackups", "")
	case !f.Backups.Value:
		return c.bad(Warn, fmt.Sprintf("aws dynamodb update-continuous-backups --table-name %s --point-in-time-recovery-specification PointInTimeRecoveryEnabled=true", f.TableName),
			"point-in-time recovery is off: what is deleted by mistake is lost")
	}
	return c.ok("point-in-time recovery is on")
}

func checkBucket(f *Facts) []Finding {
	c := check{"bucket", f.BucketName}
	if t := f.Bucket.Trouble; t != nil {
		return []Finding{c.unseen(t, "s3:ListBucket", "see that name and region are right; messages of a bucket that is gone are lost")}
	}
	return []Finding{c.ok("is there"), checkBlocked(f), checkEncryption(f), checkPolicy(f), checkLifecycle(f)}
}

func checkBlocked(f *Facts) Finding {
	c := check{"bucket.public", f.BucketName}
	fix := fmt.Sprintf("aws s3api put-public-access-block --bucket %s --public-access-block-configuration "+
		"BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true", f.BucketName)
	switch t := f.Blocked.Trouble; {
	case t != nil && t.Kind == Absent, t == nil && !f.Blocked.Value:
		return c.bad(Fail, fix, "public access is not blocked")
	case t != nil:
		return c.unseen(t, "s3:GetBucketPublicAccessBlock", "")
	}
	return c.ok("public access is blocked")
}

func checkEncryption(f *Facts) Finding {
	c := check{"bucket.encryption", f.BucketName}
	switch t := f.Encryption.Trouble; {
	case t != nil && t.Kind == Absent, t == nil && f.Encryption.Value == "":
		return c.bad(Warn, again, "no encryption is set")
	case t != nil:
		return c.unseen(t, "s3:GetEncryptionConfiguration", "")
	case strings.HasPrefix(f.Encryption.Value, "aws:kms"):
		return c.bad(Warn, "see that every function may use the key, or go back to SSE-S3: "+again, "encrypted by a key of KMS, which the functions' roles do not name")
	}
	return c.ok("%s", f.Encryption.Value)
}

func checkPolicy(f *Facts) Finding {
	c := check{"bucket.tls", f.BucketName}
	switch t := f.Policy.Trouble; {
	case t != nil && t.Kind == Absent:
		return c.bad(Warn, again, "it has no policy: plain HTTP is taken")
	case t != nil:
		return c.unseen(t, "s3:GetBucketPolicy", "")
	case !refusesPlainHTTP(f.Policy.Value, f.BucketName):
		return c.bad(Warn, again, "its policy does not refuse plain HTTP")
	}
	return c.ok("refuses plain HTTP")
}

// words is one string or a list of them, as policies have both.
type words []string

// UnmarshalJSON takes both forms.
func (w *words) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(w))
}

// refusesPlainHTTP reports whether a policy denies everyone everything that does not come over TLS.
func refusesPlainHTTP(policy, bucket string) bool {
	var doc struct {
		Statement []struct {
			Effect    string
			Principal json.RawMessage
			Action    words
			Resource  words
			Condition map[string]map[string]any
		}
	}
	if json.Unmarshal([]byte(policy), &doc) != nil {
		return false
	}
	for _, s := range doc.Statement {
		if s.Effect != "Deny" || !slices.Contains(s.Action, "s3:*") && !slices.Contains(s.Action, "*") {
			continue
		}
		if p := strings.ReplaceAll(string(s.Principal), " ", ""); p != `"*"` && p != `{"AWS":"*"}` && p != `{"AWS":["*"]}` {
			continue
		}
		if !slices.ContainsFunc(s.Resource, func(r string) bool { return r == "*" || strings.HasSuffix(r, ":"+bucket+"/*") }) {
			continue
		}
		for key, value := range s.Condition["Bool"] {
			if len(s.Condition) == 1 && len(s.Condition["Bool"]) == 1 && strings.EqualFold(key, "aws:SecureTransport") && (fmt.Sprint(value) == "false" || fmt.Sprint(value) == "[false]") {
				return true
			}
		}
	}
	return false
}

// checkLifecycle: a rule that deletes what messages are in loses acknowledged messages.
func checkLifecycle(f *Facts) Finding {
	c := check{"bucket.lifecycle", f.BucketName}
	t := f.Lifecycle.Trouble
	if t != nil && t.Kind != Absent {
		return c.unseen(t, "s3:GetLifecycleConfiguration", "")
	}
	aborts := false
	var warning *Finding
	for _, r := range f.Lifecycle.Value {
		if !r.Enabled {
			continue
		}
		aborts = aborts || r.AbortDays > 0 && r.Prefix == ""
		if r.ExpireDays == 0 {
			continue
		}
		if !strings.HasPrefix(r.Prefix, "uploads/") {
			return c.bad(Fail, fmt.Sprintf("remove the rule %q from the bucket now", r.ID), "rule %q deletes messages after %d days (prefix %q)", r.ID, r.ExpireDays, r.Prefix)
		}
		found := c.bad(Warn, "see that no topic keeps messages for so long (docs/aws.md, Uploads and age)", "rule %q deletes uploads after %d days, submitted ones, too", r.ID, r.ExpireDays)
		warning = &found
	}
	switch {
	case warning != nil:
		return *warning
	case !aborts:
		return c.bad(Warn, again, "incomplete multipart uploads stay for ever, and cost")
	}
	return c.ok("ends incomplete uploads, deletes no messages")
}
