package cli

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/doctor"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/exit"
	"github.com/spillway-mq/spillway/cmd/spillway/internal/survey"
	"github.com/spillway-mq/spillway/docs"
	"github.com/spillway-mq/spillway/pkg/client"
	"github.com/spillway-mq/spillway/pkg/client/sigv4"
)

// defaultStack is the stack's name that `make deploy` gives.
const defaultStack = "Spillway"

func (a *app) doctorCommand() *cobra.Command {
	var p survey.Place
	var region string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check a deployment in AWS, and say what to fix",
		Long: `Check a deployment in AWS: who you are, the clock, the API and its version, table, bucket, functions,
schedules, alarms, and what the functions may do. Nothing is changed.

Names come from the outputs of the stack; --table, --bucket and --endpoint win over them. A check is ok, warn,
fail, or unknown where you may not look; each but ok says what to do. The exit code is 1 if one fails.`,
		Example: `  spillway doctor
  spillway doctor --stack Spillway --output json
  spillway doctor --table TABLE --bucket BUCKET --endpoint https://ID.execute-api.REGION.amazonaws.com`,
		Args: args(),
		RunE: func(c *cobra.Command, _ []string) error {
			fs := c.Flags()
			if !fs.Changed("stack") && p.Table == "" && p.Bucket == "" {
				p.Stack = defaultStack
			}
			return a.doctor(c.Context(), p, region)
		},
	}
	fs := c.Flags()
	fs.StringVar(&p.Stack, "stack", "", "`name` of the CloudFormation stack (default "+defaultStack+", unless a table or bucket is named)")
	fs.StringVar(&p.Table, "table", "", "`name` of the table, in place of the stack's")
	fs.StringVar(&p.Bucket, "bucket", "", "`name` of the bucket, in place of the stack's")
	fs.StringVar(&region, "region", "", "AWS region (default that of the URL, or the usual configuration)")
	return c
}

// diagnosis is the JSON form of `spillway doctor`.
type diagnosis struct {
	Region   string           `json:"region"`
	Stack    string           `json:"stack,omitempty"`
	Table    string           `json:"table,omitempty"`
	Bucket   string           `json:"bucket,omitempty"`
	Endpoint string           `json:"endpoint,omitempty"`
	OK       int              `json:"ok"`
	Warn     int              `json:"warn"`
	Fail     int              `json:"fail"`
	Unknown  int              `json:"unknown"`
	Findings []doctor.Finding `json:"findings"`
}

func (a *app) doctor(ctx context.Context, p survey.Place, region string) error {
	c, err := configure(a.globals, a.LookupEnv)
	if err != nil {
		return err
	}
	if a.givenEndpoint() {
		p.URL = c.endpoint
	}
	if r, ok := sigv4.Region(p.URL); ok && region == "" {
		region = r
	}
	cfg, err := awsConfig(ctx, region)
	if err != nil {
		return err
	}
	if cfg.Region == "" {
		return exit.Usagef("no AWS region: give --region, set AWS_REGION, or a region in the profile")
	}
	p.Emulated, p.PathStyle = emulator(cfg.BaseEndpoint)
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	facts := survey.Survey(ctx, cfg, p, survey.Options{
		Program: a.version, Document: docs.OpenAPI, Clock: time.Now,
		Dial: func(ctx context.Context, address string) (*client.Client, error) {
			own := c
			own.endpoint = address
			if err := own.chooseAuth(a.globals.auth, a.LookupEnv); err != nil {
				return nil, err
			}
			return own.newClient(ctx, a.version)
		},
	})
	list := doctor.Examine(facts)
	d := diagnosis{
		Region: facts.Region, Stack: p.Stack, Table: facts.TableName, Bucket: facts.BucketName, Endpoint: facts.API.URL, Findings: list,
		OK: doctor.Count(list, doctor.OK), Warn: doctor.Count(list, doctor.Warn), Fail: doctor.Count(list, doctor.Fail),
		Unknown: doctor.Count(list, doctor.Unknown),
	}
	if c.json {
		err = printJSON(a.Stdout, d)
	} else {
		err = a.printDiagnosis(&d)
	}
	if err == nil && d.Fail > 0 {
		err = &exit.SilentError{Code: exit.Failure}
	}
	return err
}

// givenEndpoint reports whether an endpoint was named, by flag or environment.
func (a *app) givenEndpoint() bool {
	v, ok := a.LookupEnv(envEndpoint)
	return a.globals.endpoint != "" || ok && v != ""
}

// emulator reports whether AWS is an emulator, and whether its address has no subdomains for buckets.
func emulator(base *string) (emulated, pathStyle bool) {
	if base == nil {
		return false, false
	}
	u, err := url.Parse(*base)
	if err != nil {
		return true, false
	}
	_, ip := netip.ParseAddr(u.Hostname())
	return true, ip == nil || u.Hostname() == "localhost"
}

// printDiagnosis writes a line for each finding, what to do below it, and the sums.
func (a *app) printDiagnosis(d *diagnosis) error {
	for i := range d.Findings {
		f := &d.Findings[i]
		subject := ""
		if f.Subject != "" && f.Status != doctor.OK {
			subject = f.Subject + ": "
		}
		if _, err := fmt.Fprintf(a.Stdout, "%-7s  %-22s  %s\n", f.Status, f.Check, printable(subject+f.Message)); err != nil {
			return err
		}
		// What many lines have in common is said once, below the last.
		more := i+1 < len(d.Findings) && d.Findings[i+1].Status == f.Status && d.Findings[i+1].Fix == f.Fix
		if f.Fix != "" && !more {
			if _, err := fmt.Fprintf(a.Stdout, "%-7s  %-22s  fix: %s\n", "", "", printable(f.Fix)); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(a.Stdout, "%d ok, %d to mind, %d failed, %d unknown\n", d.OK, d.Warn, d.Fail, d.Unknown)
	return err
}
