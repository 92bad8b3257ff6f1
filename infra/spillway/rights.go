package spillway

import (
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
	"github.com/cdklabs/cdk-nag-go/cdknag/v2"
)

// Right is what one function may do with one resource.
type Right struct {
	// On is "table", "bucket", or a prefix of the bucket's objects: "batches/*".
	On string
	// Actions are IAM actions.
	Actions []string
}

// Rights lists what f may do, besides writing its own log. docs/aws.md has the reasons; a test holds
// the two and the template together.
//
// IAM knows no TransactWriteItems: a transaction needs the right of each of its parts. Submitting an
// upload, moving a dead letter and the first lease of a segment check a record that they do not change, which is
// ConditionCheckItem.
//
// The leader reads the heads of a topic's segments together, which is BatchGetItem.
//
// Produce reads batches/ to see whether a put whose answer was lost took effect.
//
// ListBucket is there for everyone who reads objects: without it S3 answers 403, not 404, for an
// object that is not there, and a replaced batch could not be told from a missing right. It has no
// condition on the prefix, which S3 would not take into account there.
func Rights(f Function) []Right {
	write := []string{"dynamodb:GetItem", "dynamodb:Query", "dynamodb:PutItem", "dynamodb:UpdateItem"}
	all := slices.Concat(write, []string{"dynamodb:DeleteItem"})
	check, several := "dynamodb:ConditionCheckItem", "dynamodb:BatchGetItem" // a topic's segments are read at once
	list := Right{"bucket", []string{"s3:ListBucket"}}
	read := []string{"s3:GetObject"}
	wake := Right{"leader", []string{"lambda:InvokeFunction"}} // that its topic's load be looked at
	switch f {
	case Produce:
		return []Right{
			{"table", append(write, check)},
			list,
			{"batches/*", []string{"s3:GetObject", "s3:PutObject"}},
			{"uploads/*", []string{"s3:GetObject", "s3:PutObject"}},
			wake,
		}
	case Consume:
		return []Right{{"table", append(all, check)}, list, {"batches/*", read}, {"uploads/*", read}, {"segments/*", read}, wake}
	case Leader:
		return []Right{{"table", append(all, several)}}
	case Compactor:
		collect := []string{"s3:GetObject", "s3:DeleteObject"}
		return []Right{
			{"table", append(all, check)},
			list,
			{"batches/*", collect},
			{"uploads/*", collect},
			{"segments/*", slices.Concat(collect, []string{"s3:PutObject", "s3:AbortMultipartUpload"})},
		}
	}
	return nil
}

// statements are f's rights on this deployment's bucket and table.
func (s *Spillway) statements(f Function) []awsiam.PolicyStatement {
	var out []awsiam.PolicyStatement
	for _, r := range Rights(f) {
		resource := s.Table.TableArn()
		switch {
		case r.On == "bucket":
			resource = s.Bucket.BucketArn()
		case r.On == "leader":
			resource = s.Functions[Leader].FunctionArn()
		case strings.HasSuffix(r.On, "/*"):
			resource = s.Bucket.ArnForObjects(jsii.String(r.On))
		}
		out = append(out, allow(r.Actions, resource))
	}
	return out
}

func allow(actions []string, resource *string) awsiam.PolicyStatement {
	return awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Actions: stringsOf(actions), Resources: &[]*string{resource},
	})
}

// finding is one of cdk-nag's that is as it should be, and why.
type finding struct {
	// rule is the rule's id.
	rule string
	// what, if any, narrows it down: regular expressions over the finding's id.
	what []string
	why  string
}

// accept writes into the template that a finding is known. The reasons travel with the construct, so
// that those who embed it need not look into it to get a clean report.
func (s *Spillway) accept(on constructs.IConstruct, f finding) {
	sup := &cdknag.NagPackSuppression{Id: jsii.String(f.rule), Reason: jsii.String(f.why)}
	if len(f.what) > 0 {
		var applies []any
		for _, expr := range f.what {
			applies = append(applies, &cdknag.RegexAppliesTo{Regex: jsii.String("/" + expr + "/")})
		}
		sup.AppliesTo = &applies
	}
	cdknag.NagSuppressions_AddResourceSuppressions(on, &[]*cdknag.NagPackSuppression{sup}, jsii.Bool(true))
}
