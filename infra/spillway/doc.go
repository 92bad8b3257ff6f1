// Package spillway is Spillway on AWS as one CDK construct: a bucket, a table, four functions, an
// HTTP API in front of them, two schedules, alarms and a dashboard.
//
// Vocabulary: a function is one of the four of Functions; a right is a list of actions on one
// resource that a function's role allows; kept data is a bucket and a table that outlive the stack.
//
// Invariants, each tested on the template: a role allows what docs/aws.md lists and nothing else;
// every route asks for credentials; no resource has a physical name, so that any number of
// deployments fit into one account; bucket and table stay when the stack goes, unless
// Props.DestroyData says otherwise.
//
// Non-goals: building the functions (tools/functions does), domain names and certificates, VPCs.
package spillway
