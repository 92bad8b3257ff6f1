// Package httpapi is the HTTP edge: it decodes requests, calls the use cases and encodes their
// answers. docs/openapi.yaml describes what it speaks; a test holds the two together.
//
// Vocabulary: a route is a method and a path pattern; an entry is one item of a call that answers per
// item; a rendering turns a delivery into messages of JSON or into a frame of pkg/httpapi/wire.
//
// Invariants: every answer but a success of a route is the error form, with a code of the table in
// pkg/queue, whatever the request was; every answer has a request id; a request that is refused has
// changed nothing; one bad entry does not fail the others; no log line holds a payload, a query
// string or a credential; memory per call is bounded by queue.MaxRequestBytes and
// queue.MaxClaimBytes times small constants.
//
// Non-goals: storing anything, retries, TLS, rate limits, serving objects (a handler that is passed
// in does that).
package httpapi
