// Costpage writes docs/cost.md and docs/cost.svg.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spillway-mq/spillway/cmd/spillway/internal/cost"
)

func main() {
	dir := flag.String("dir", "docs", "`folder` to write to")
	flag.Parse()
	if err := write(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "costpage:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	page, plot, err := cost.Page(context.Background())
	if err != nil {
		return err
	}
	const mode = 0o644
	if err := os.WriteFile(filepath.Join(dir, "cost.md"), []byte(page), mode); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cost.svg"), []byte(plot), mode)
}
