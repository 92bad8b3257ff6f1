package dynamometa

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/spillway-mq/spillway/pkg/queue"
)

// TableAPI is what CreateTable uses of *dynamodb.Client.
type TableAPI interface {
	CreateTable(ctx context.Context, in *dynamodb.CreateTableInput, opts ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error)
	DescribeTable(ctx context.Context, in *dynamodb.DescribeTableInput, opts ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error)
}

// TTLAttribute is the attribute that the table's time to live must be switched on for, by whoever deploys
// the table: records that expire hold it.
const TTLAttribute = attrTTL

// TableInput is the table as the store needs it: keys pk and sk, both strings, paid for by request.
func TableInput(name string) *dynamodb.CreateTableInput {
	return &dynamodb.CreateTableInput{
		TableName: aws.String(name), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(attrPK), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String(attrSK), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(attrPK), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String(attrSK), KeyType: types.KeyTypeRange},
		},
	}
}

// CreateTable makes the table and waits until it is there, for tests and for trying things out; a stack
// deploys its own. A table that is there already is no error. Errors are of KindUnavailable.
func CreateTable(ctx context.Context, api TableAPI, name string) error {
	fail := func(err error) error {
		return &queue.Error{Op: "create table", Subject: name, Kind: queue.KindUnavailable, Err: err}
	}
	_, err := api.CreateTable(ctx, TableInput(name))
	var exists *types.ResourceInUseException
	if err != nil && !errors.As(err, &exists) {
		return fail(err)
	}
	for n := 0; ; n++ {
		out, err := api.DescribeTable(ctx, &dynamodb.DescribeTableInput{TableName: &name})
		switch {
		case err != nil:
			return fail(err)
		case out.Table != nil && out.Table.TableStatus != types.TableStatusCreating:
			return nil // some emulators tell no status
		case !pause(ctx, n):
			return fail(context.Cause(ctx))
		}
	}
}
