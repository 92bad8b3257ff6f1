package exit

import (
	"errors"
	"strings"

	"github.com/spillway-mq/spillway/pkg/client/sigv4"
)

// credentialsLine says what to do where there are no AWS credentials; empty for any other error. What the
// SDK says of it can be several hundred characters long, and its types differ by provider.
func credentialsLine(err error) string {
	var missing *sigv4.CredentialsError
	if !errors.As(err, &missing) {
		return ""
	}
	text := strings.ToLower(missing.Error())
	switch {
	case strings.Contains(text, "sso") || strings.Contains(text, "login"):
		return "the session of AWS has expired: run: aws sso login"
	case strings.Contains(text, "imds"):
		return "no AWS credentials: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run: aws configure; " +
			"--auth none calls a server that wants none"
	case strings.Contains(text, "expiredtoken") || strings.Contains(text, "expired"):
		return "the AWS credentials have expired: get new ones; what AWS says: " + oneLine(missing.Err.Error())
	}
	return oneLine(missing.Error())
}
