package sigv4

import (
	"net/url"
	"regexp"
)

// host is an API Gateway's own name: the API's id, perhaps with that of a VPC endpoint, and the region.
var host = regexp.MustCompile(`^[a-z0-9]+(?:-vpce-[a-z0-9]+)?\.execute-api\.([a-z0-9-]+)\.(?:amazonaws\.com(?:\.cn)?|api\.aws)$`)

// Region finds the region in the URL of an API Gateway: https://ID.execute-api.REGION.amazonaws.com. It is
// false for any other URL, a custom domain's among them.
func Region(endpoint string) (region string, ok bool) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" {
		return "", false
	}
	m := host.FindStringSubmatch(u.Hostname())
	if m == nil {
		return "", false
	}
	return m[1], true
}
