package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// buildVersion is what the build knows of itself: a tag, or a pseudo-version with the commit.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}

// versionInfo is the JSON form of `spillway version`.
type versionInfo struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	API     string `json:"api"`
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "The version of this program",
		Args:  args(),
		RunE: func(*cobra.Command, []string) error {
			c, err := configure(a.globals, a.LookupEnv)
			if err != nil {
				return err
			}
			v := versionInfo{a.version, runtime.Version(), runtime.GOOS, runtime.GOARCH, "v1"}
			if c.json {
				return printJSON(a.Stdout, v)
			}
			_, err = fmt.Fprintf(a.Stdout, "spillway %s (%s, %s/%s, API %s)\n", v.Version, v.Go, v.OS, v.Arch, v.API)
			return err
		},
	}
}
