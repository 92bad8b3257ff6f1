// Package docs carries the documents that programs serve: the description of the HTTP API.
package docs

import _ "embed"

// OpenAPI is docs/openapi.yaml: the HTTP API in OpenAPI 3.1. It is not to be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
