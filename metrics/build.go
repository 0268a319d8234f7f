package metrics

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

const modulePath = "github.com/dueq/dueq"

func buildInfo(version string) prometheus.Metric {
	desc := prometheus.NewDesc("dueq_build_info", "The version of dueq; always 1.", []string{"version", "goversion"}, nil)
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, version, runtime.Version())
}

// moduleVersion is the version of dueq in this binary, be it the program
// itself or a library of it.
func moduleVersion() string {
	const unknown = "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	for _, module := range append(info.Deps, &info.Main) {
		if module.Path == modulePath && module.Version != "" {
			return module.Version
		}
	}
	return unknown
}
