package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/constructs-go/constructs/v10"

	"github.com/spillway-mq/spillway/infra/spillway"
)

// config is what the context says.
type config struct {
	stack, version, alarmTopic string
	props                      spillway.Props
}

// setting is one key of the context. docs/aws.md lists them; a test compares.
type setting struct {
	key string
	set func(c *config, value string) error
}

func settings() []setting {
	return []setting{
		{"stack", text(func(c *config) *string { return &c.stack })},
		{"version", text(func(c *config) *string { return &c.version })},
		{"code", text(func(c *config) *string { return &c.props.CodeDir })},
		{"arch", func(c *config, v string) error { c.props.Architecture = spillway.Architecture(v); return nil }},
		{"data", func(c *config, v string) (err error) {
			c.props.DestroyData, err = choice(v, "destroy", "keep")
			return err
		}},
		{"bucket", func(c *config, v string) error { existing(c).BucketName = v; return nil }},
		{"table", func(c *config, v string) error { existing(c).TableName = v; return nil }},
		{"uploadExpiryDays", whole(func(c *config, n int) { c.props.UploadExpiry = time.Duration(n) * 24 * time.Hour })},
		{"auth", func(c *config, v string) error {
			isJWT, err := choice(v, "jwt", "iam")
			if isJWT {
				jwt(c)
			}
			return err
		}},
		{"jwtIssuer", func(c *config, v string) error { jwt(c).Issuer = v; return nil }},
		{"jwtAudience", func(c *config, v string) error { jwt(c).Audience = list(v); return nil }},
		{"jwtScopes", func(c *config, v string) error { jwt(c).Scopes = list(v); return nil }},
		{"corsOrigins", func(c *config, v string) error { c.props.CORSOrigins = list(v); return nil }},
		{"rateLimit", number(func(c *config) *float64 { return &c.props.RateLimit })},
		{"burstLimit", number(func(c *config) *float64 { return &c.props.BurstLimit })},
		{"leaderConcurrency", whole(func(c *config, n int) { c.props.Leader.Concurrency = concurrency(n) })},
		{"compactorConcurrency", whole(func(c *config, n int) { c.props.Compactor.Concurrency = concurrency(n) })},
		{"compact", text(func(c *config) *string { return &c.props.Compact })},
		{"logLevel", text(func(c *config) *string { return &c.props.LogLevel })},
		{"logRetentionDays", func(c *config, v string) (err error) { c.props.LogRetention, err = retention(v); return err }},
		{"tracing", func(c *config, v string) (err error) { c.props.Tracing, err = choice(v, "true", "false"); return err }},
		{"alarmTopic", text(func(c *config) *string { return &c.alarmTopic })},
		{"oldestMessageAge", func(c *config, v string) (err error) {
			c.props.OldestMessageAge, err = time.ParseDuration(v)
			return err
		}},
		{"dashboard", func(c *config, v string) (err error) {
			c.props.NoDashboard, err = choice(v, "false", "true")
			return err
		}},
	}
}

// readConfig reads the context. A key that looks like one of ours but is not is an error: a mistyped
// one would otherwise deploy something else than was meant, and say nothing.
func readConfig(node constructs.Node) (*config, error) {
	c := &config{stack: "Spillway"}
	known := settings()
	all, ok := node.GetAllContext(nil).(map[string]any)
	if !ok {
		return nil, errors.New("the context is no object")
	}
	ours := regexp.MustCompile(`^[a-z][A-Za-z]*$`)
	for key := range all {
		if ours.MatchString(key) && !slices.ContainsFunc(known, func(s setting) bool { return s.key == key }) {
			return nil, fmt.Errorf("unknown setting %q: docs/aws.md lists them", key)
		}
	}
	for _, s := range known {
		value, ok := all[s.key]
		if !ok {
			continue
		}
		if err := s.set(c, fmt.Sprint(value)); err != nil {
			return nil, fmt.Errorf("setting %s=%v: %w", s.key, value, err)
		}
	}
	if c.props.JWT != nil && all["auth"] != "jwt" {
		return nil, errors.New("the jwt… settings want auth=jwt, too")
	}
	if c.version == "" {
		c.version = buildVersion()
	}
	if c.props.CodeDir == "" {
		root, err := moduleRoot()
		if err != nil {
			return nil, err
		}
		c.props.CodeDir = filepath.Join(root, "build")
	}
	return c, nil
}

// moduleRoot is the folder at or above the working directory that holds go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above: say where the functions are by -c code=DIR")
		}
		dir = parent
	}
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

func existing(c *config) *spillway.Existing {
	if c.props.Existing == nil {
		c.props.Existing = &spillway.Existing{}
	}
	return c.props.Existing
}

func jwt(c *config) *spillway.JWT {
	if c.props.JWT == nil {
		c.props.JWT = &spillway.JWT{}
	}
	return c.props.JWT
}

func text(field func(*config) *string) func(*config, string) error {
	return func(c *config, v string) error { *field(c) = v; return nil }
}

func number(field func(*config) *float64) func(*config, string) error {
	return func(c *config, v string) (err error) {
		*field(c), err = strconv.ParseFloat(v, 64)
		return err
	}
}

func whole(set func(*config, int)) func(*config, string) error {
	return func(c *config, v string) error {
		n, err := strconv.Atoi(v)
		if err == nil && n < 0 {
			err = errors.New("must not be negative")
		}
		if err == nil {
			set(c, n)
		}
		return err
	}
}

// choice tells yes from no, and refuses anything else.
func choice(v, yes, no string) (bool, error) {
	if v != yes && v != no {
		return false, fmt.Errorf("must be %s or %s", yes, no)
	}
	return v == yes, nil
}

func list(v string) []string {
	var out []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// concurrency translates the context's 0, nothing set aside, to the construct's.
func concurrency(n int) int {
	if n == 0 {
		return spillway.Unreserved
	}
	return n
}

// retention gives CloudWatch's word for a number of days, of which it takes only some.
func retention(v string) (awslogs.RetentionDays, error) {
	switch v {
	case "1":
		return awslogs.RetentionDays_ONE_DAY, nil
	case "7":
		return awslogs.RetentionDays_ONE_WEEK, nil
	case "14":
		return awslogs.RetentionDays_TWO_WEEKS, nil
	case "30":
		return awslogs.RetentionDays_ONE_MONTH, nil
	case "90":
		return awslogs.RetentionDays_THREE_MONTHS, nil
	case "180":
		return awslogs.RetentionDays_SIX_MONTHS, nil
	case "365":
		return awslogs.RetentionDays_ONE_YEAR, nil
	case "0":
		return awslogs.RetentionDays_INFINITE, nil
	}
	return "", errors.New("must be 1, 7, 14, 30, 90, 180, 365, or 0 for ever")
}
