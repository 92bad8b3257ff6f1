package spillway

import (
	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awss3"
	"github.com/aws/jsii-runtime-go"
)

// addStorage makes bucket and table, or adopts them.
func (s *Spillway) addStorage() {
	if e := s.props.Existing; e != nil {
		s.Bucket = awss3.Bucket_FromBucketName(s.Construct, jsii.String("Bucket"), &e.BucketName)
		s.Table = awsdynamodb.Table_FromTableName(s.Construct, jsii.String("Table"), &e.TableName)
		return
	}
	removal := awscdk.RemovalPolicy_RETAIN
	if s.props.DestroyData {
		removal = awscdk.RemovalPolicy_DESTROY
	}
	s.addBucket(removal)
	s.Table = awsdynamodb.NewTable(s.Construct, jsii.String("Table"), &awsdynamodb.TableProps{
		PartitionKey:        &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
		SortKey:             &awsdynamodb.Attribute{Name: jsii.String("sk"), Type: awsdynamodb.AttributeType_STRING},
		BillingMode:         awsdynamodb.BillingMode_PAY_PER_REQUEST,
		TimeToLiveAttribute: jsii.String("ttl"),
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true),
		},
		DeletionProtection: jsii.Bool(!s.props.DestroyData),
		RemovalPolicy:      removal,
	})
}

func (s *Spillway) addBucket(removal awscdk.RemovalPolicy) {
	rules := []*awss3.LifecycleRule{{
		Id:                                  jsii.String("abort-incomplete-multipart-uploads"),
		AbortIncompleteMultipartUploadAfter: awscdk.Duration_Days(jsii.Number(1)),
	}}
	if expiry := s.props.UploadExpiry; expiry > 0 {
		rules = append(rules, &awss3.LifecycleRule{
			Id:         jsii.String("expire-uploads"),
			Prefix:     jsii.String("uploads/"),
			Expiration: awscdk.Duration_Days(jsii.Number(int(expiry / day))),
		})
	}
	bucket := awss3.NewBucket(s.Construct, jsii.String("Bucket"), &awss3.BucketProps{
		BlockPublicAccess: awss3.BlockPublicAccess_BLOCK_ALL(),
		ObjectOwnership:   awss3.ObjectOwnership_BUCKET_OWNER_ENFORCED,
		Encryption:        awss3.BucketEncryption_S3_MANAGED,
		EnforceSSL:        jsii.Bool(true),
		MinimumTLSVersion: jsii.Number(1.2),
		LifecycleRules:    &rules,
		Cors:              s.bucketCORS(),
		RemovalPolicy:     removal,
		// Only here: it brings a function of its own, which may delete everything.
		AutoDeleteObjects: jsii.Bool(s.props.DestroyData),
	})
	s.Bucket = bucket
	s.accept(bucket, finding{
		rule: "AwsSolutions-S1",
		why:  "Server access logs would be a second bucket that grows with the traffic. The API's access log tells who was given a presigned URL; CloudTrail data events tell the rest, for those who want them.",
	})
}

// bucketCORS lets browsers use presigned URLs; a URL's signature says what may be done with it.
func (s *Spillway) bucketCORS() *[]*awss3.CorsRule {
	if len(s.props.CORSOrigins) == 0 {
		return nil
	}
	return &[]*awss3.CorsRule{{
		AllowedMethods: &[]awss3.HttpMethods{awss3.HttpMethods_GET, awss3.HttpMethods_HEAD, awss3.HttpMethods_PUT},
		AllowedOrigins: stringsOf(s.props.CORSOrigins),
		AllowedHeaders: jsii.Strings("*"),
		ExposedHeaders: jsii.Strings("ETag", "x-amz-checksum-crc32c"),
		MaxAge:         jsii.Number(3600),
	}}
}
