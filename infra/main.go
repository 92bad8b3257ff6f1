// Infra is the CDK app that deploys Spillway to AWS. The CDK's command line runs it; run directly it
// writes the template itself, needing nothing but Go and Node.js:
//
//	CDK_OUTDIR=out/cdk go run ./infra -c auth=jwt -c jwtIssuer=https://… -c jwtAudience=spillway
//
// docs/aws.md tells the settings, and what is deployed. The construct is infra/spillway.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/aws/jsii-runtime-go"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "infra:", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	given, err := parse(args, stderr)
	if err != nil {
		return err
	}
	if _, err := exec.LookPath("node"); err != nil {
		return errors.New("the CDK runs in Node.js, and there is no node in PATH: install Node.js 20 or newer")
	}
	defer jsii.Close()
	return synth(given, appOptions{Validate: true}, stderr)
}

// parse reads the settings given by flags.
func parse(args []string, stderr io.Writer) (map[string]any, error) {
	given := make(map[string]any)
	flags := flag.NewFlagSet("infra", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Func("c", "a setting, `KEY=VALUE`; repeat for more. The CDK's command line has the same flag.", func(s string) error {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("want KEY=VALUE")
		}
		given[key] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return given, nil
}
