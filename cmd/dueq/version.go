package main

import (
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show which dueq this is",
		Example: `  dueq version -o json`,
		Args:    exactly(),
		RunE: func(*cobra.Command, []string) error {
			v := build()
			return a.print(v, func(w io.Writer) {
				row(w, "dueq", v.Version)
				row(w, "commit", orDash(v.Commit)+map[bool]string{true: ", modified"}[v.Modified])
				row(w, "go", v.Go)
				row(w, "platform", v.Platform)
			})
		},
	}
}

type versionView struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"` // the tree had changes that are not in the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func build() versionView {
	v := versionView{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, set := range info.Settings {
		switch set.Key {
		case "vcs.revision":
			v.Commit = set.Value
		case "vcs.modified":
			v.Modified = set.Value == "true"
		}
	}
	return v
}
