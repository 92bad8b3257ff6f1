// Package localstack deploys Spillway with the real CDK to an emulator of AWS and then drives it from outside
// only: calls of the API Gateway, presigned URLs, the functions' logs, the schedules.
//
// Vocabulary: the endpoint is the emulator's address (AWS_ENDPOINT_URL); a deployment is one stack on it.
//
// The tests do not know which emulator it is. They are built with the tag localstack alone, since they want an
// endpoint, Node.js and minutes: `make test-aws` starts one where AWS_ENDPOINT_URL names none.
//
// Non-goals: what no emulator has (limits of memory and concurrency, freezing): pkg/sim, the
// assertions on the template in infra, and real AWS have those.
package localstack
