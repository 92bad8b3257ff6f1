package survey

import (
	"context"
	"sort"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
)

func (s *surveyor) table(ctx context.Context) {
	f := s.facts
	if f.TableName == "" {
		f.Table.Trouble = unasked("name the table with --table, or the stack with --stack")
		return
	}
	table, err := s.dynamodb.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &f.TableName})
	f.Table = ask(table, err, func(out *dynamodb.DescribeTableOutput) doctor.Table { return tableOf(out.Table) })
	ttl, err := s.dynamodb.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &f.TableName})
	f.TTL = ask(ttl, err, func(out *dynamodb.DescribeTimeToLiveOutput) string {
		d := out.TimeToLiveDescription
		if d == nil || d.TimeToLiveStatus != dynamotypes.TimeToLiveStatusEnabled && d.TimeToLiveStatus != dynamotypes.TimeToLiveStatusEnabling {
			return ""
		}
		return aws.ToString(d.AttributeName)
	})
	backups, err := s.dynamodb.DescribeContinuousBackups(ctx, &dynamodb.DescribeContinuousBackupsInput{TableName: &f.TableName})
	f.Backups = ask(backups, err, func(out *dynamodb.DescribeContinuousBackupsOutput) bool {
		d := out.ContinuousBackupsDescription
		return d != nil && d.PointInTimeRecoveryDescription != nil &&
			d.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == dynamotypes.PointInTimeRecoveryStatusEnabled
	})
}

func tableOf(d *dynamotypes.TableDescription) doctor.Table {
	if d == nil {
		return doctor.Table{}
	}
	types := map[string]string{}
	for _, a := range d.AttributeDefinitions {
		types[aws.ToString(a.AttributeName)] = string(a.AttributeType)
	}
	var keys []string
	for _, k := range d.KeySchema {
		name := aws.ToString(k.AttributeName)
		keys = append(keys, name+":"+types[name]+" "+string(k.KeyType))
	}
	// HASH before RANGE.
	sort.Slice(keys, func(i, j int) bool { return strings.HasSuffix(keys[i], "HASH") && !strings.HasSuffix(keys[j], "HASH") })
	return doctor.Table{
		Keys: strings.Join(keys, ", "), Status: string(d.TableStatus), DeletionProtection: aws.ToBool(d.DeletionProtectionEnabled),
		OnDemand: d.BillingModeSummary != nil && d.BillingModeSummary.BillingMode == dynamotypes.BillingModePayPerRequest,
	}
}

func (s *surveyor) bucket(ctx context.Context) {
	f := s.facts
	if f.BucketName == "" {
		f.Bucket.Trouble = unasked("name the bucket with --bucket, or the stack with --stack")
		return
	}
	name := &f.BucketName
	head, err := s.s3.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: name})
	f.Bucket = ask(head, err, func(*s3.HeadBucketOutput) struct{} { return struct{}{} })
	block, err := s.s3.GetPublicAccessBlock(ctx, &s3.GetPublicAccessBlockInput{Bucket: name})
	f.Blocked = ask(block, err, func(out *s3.GetPublicAccessBlockOutput) bool {
		c := out.PublicAccessBlockConfiguration
		return c != nil && aws.ToBool(c.BlockPublicAcls) && aws.ToBool(c.BlockPublicPolicy) && aws.ToBool(c.IgnorePublicAcls) && aws.ToBool(c.RestrictPublicBuckets)
	})
	encryption, err := s.s3.GetBucketEncryption(ctx, &s3.GetBucketEncryptionInput{Bucket: name})
	f.Encryption = ask(encryption, err, func(out *s3.GetBucketEncryptionOutput) string {
		if c := out.ServerSideEncryptionConfiguration; c != nil {
			for _, r := range c.Rules {
				if d := r.ApplyServerSideEncryptionByDefault; d != nil {
					return string(d.SSEAlgorithm)
				}
			}
		}
		return ""
	})
	policy, err := s.s3.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: name})
	f.Policy = ask(policy, err, func(out *s3.GetBucketPolicyOutput) string { return aws.ToString(out.Policy) })
	rules, err := s.s3.GetBucketLifecycleConfiguration(ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: name})
	f.Lifecycle = ask(rules, err, func(out *s3.GetBucketLifecycleConfigurationOutput) []doctor.Rule { return rulesOf(out.Rules) })
}

func rulesOf(list []s3types.LifecycleRule) []doctor.Rule {
	out := make([]doctor.Rule, 0, len(list))
	for i := range list {
		r := &list[i]
		rule := doctor.Rule{
			ID: aws.ToString(r.ID), Enabled: r.Status == s3types.ExpirationStatusEnabled,
			Prefix: aws.ToString(r.Prefix), //nolint:staticcheck // deprecated, and still what old rules have
		}
		if fl := r.Filter; fl != nil {
			switch {
			case fl.Prefix != nil:
				rule.Prefix = *fl.Prefix
			case fl.And != nil:
				rule.Prefix = aws.ToString(fl.And.Prefix)
			}
		}
		if e := r.Expiration; e != nil {
			rule.ExpireDays = int(aws.ToInt32(e.Days))
			if e.Date != nil {
				rule.ExpireDays = 1 // everything, from that day on
			}
		}
		if a := r.AbortIncompleteMultipartUpload; a != nil {
			rule.AbortDays = int(aws.ToInt32(a.DaysAfterInitiation))
		}
		out = append(out, rule)
	}
	return out
}
