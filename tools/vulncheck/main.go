// Vulncheck runs govulncheck over the module where the vulnerability database can be reached, and
// says so plainly where it cannot, so that a build without that network stays honest and green.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// database is what govulncheck asks when GOVULNDB is not set.
const database = "https://vuln.go.dev"

// probeTimeout bounds the one request that decides whether to run at all.
const probeTimeout = 5 * time.Second

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	url := database
	if env := os.Getenv("GOVULNDB"); env != "" {
		url = env
	}
	if err := probe(ctx, url+"/index/db.json"); err != nil {
		fmt.Printf("govulncheck: database not reachable, not run (%v)\n", err)
		return nil
	}
	if err := command(ctx, filepath.Join("tools", "install"), "govulncheck"); err != nil {
		return err
	}
	return command(ctx, filepath.Join(".tools", "bin", "govulncheck"), "./...")
}

// probe reports why url does not answer with success within probeTimeout.
func probe(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func command(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
