package main

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/config"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const serveHelp = `Serve the store over HTTP, push due tasks to webhooks and forward them to lists
and streams, as the settings of queues say, and show metrics.

All of it can be in a file: --config FILE or $DUEQ_CONFIG. The environment wins
over the file, as in DUEQ_LOG_LEVEL=debug, and flags win over both. What is
wrong or not known is refused, all at once. --print-config shows what holds, where
it comes from, and no secrets.

Without tokens everybody who reaches the server may do everything, so it only
listens on this machine then. dueq token makes one.

A store that is away does not keep it from starting: /livez is green, /readyz
red and calls answer 503 until the store is there. A wrong URL, a wrong password
or a missing right ends it at once.

SIGINT or SIGTERM stops: /readyz turns red and waiting claims are answered empty,
after --drain nothing new is accepted, what runs has --grace to end, then the
exit code is 0. A second one exits at once with 1. Addresses go to stdout.`

func (a *app) serve() *cobra.Command {
	var show bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the store over HTTP, push and forward due tasks",
		Long:  serveHelp,
		Example: `  dueq serve
  dueq serve --config /etc/dueq.yaml
  DUEQ_LISTEN=:8080 dueq serve --config /etc/dueq.yaml --log-format json
  dueq serve --config /etc/dueq.yaml --print-config`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.config(a.environ(), configFlags(cmd))
			if err != nil {
				return err
			}
			if show {
				return a.printConfig(cfg)
			}
			return a.runServe(cmd.Context(), cfg)
		},
	}
	def, flags := config.Default(), cmd.Flags()
	flags.BoolVar(&show, "print-config", false, "show the configuration and exit")
	setsKey(flags, "listen", "ADDRESSES", "where to listen, HOST:PORT with port 0 for any, or unix:PATH; more with commas", strings.Join(def.Listen, ","))
	setsKey(flags, "insecure_any_host", "", "without tokens, let other machines in too", "")
	setsKey(flags, "drain", "DURATION", "how long to accept requests after the signal to stop", dueq.FormatDuration(def.Drain))
	setsKey(flags, "grace", "DURATION", "how long to wait then for what runs", dueq.FormatDuration(def.Grace))
	setsKey(flags, "log.level", "LEVEL", "debug, info, warn or error", def.Log.Level)
	setsKey(flags, "log.format", "FORMAT", "text or json, on stderr", def.Log.Format)
	completeWords(cmd, "log-level", "debug", "info", "warn", "error")
	completeWords(cmd, "log-format", "text", "json")
	return cmd
}

// keyOf names, among the annotations of a flag, the key that it sets.
const keyOf = "key"

// setsKey adds a flag for a key of the configuration, which checks its value
// together with the others. Without a type it is true or false.
func setsKey(flags *pflag.FlagSet, key, typ, usage, value string) {
	name := config.FlagName(key)
	if typ == "" {
		flags.Bool(name, false, usage)
	} else {
		flags.Var(newValue(new(string), value, typ, unchecked), name, usage)
	}
	_ = flags.SetAnnotation(name, keyOf, []string{key})
}

func unchecked(s string) (string, error) { return s, nil }

// configFlags returns those that were given, by key.
func configFlags(cmd *cobra.Command) map[string]string {
	given := map[string]string{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if key, ok := f.Annotations[keyOf]; ok {
			given[key[0]] = f.Value.String()
		}
	})
	return given
}

// printConfig writes YAML, which can be used as a file, or JSON.
func (a *app) printConfig(cfg config.Config) error {
	if a.format != "json" {
		return cfg.Print(a.stdout)
	}
	values, err := cfg.Values()
	if err != nil {
		return err
	}
	return a.print(map[string]any{"config": values, "sources": cfg.Sources()}, nil)
}

// servedView is what is printed about the listeners.
type servedView struct {
	Addresses []string `json:"addresses"` // with the ports in use
	URLs      []string `json:"urls"`      // for this machine
}

func viewServed(listeners []net.Listener) servedView {
	var v servedView
	for _, l := range listeners {
		address, url := l.Addr().String(), ""
		if tcp, ok := l.Addr().(*net.TCPAddr); ok {
			host := tcp.IP.String()
			if tcp.IP.IsUnspecified() {
				host = "127.0.0.1"
			}
			url = "http://" + net.JoinHostPort(host, fmt.Sprint(tcp.Port))
		} else {
			address = "unix:" + address
			url = address
		}
		v.Addresses, v.URLs = append(v.Addresses, address), append(v.URLs, url)
	}
	return v
}

// printServed writes one line for a program, or one for each URL.
func (a *app) printServed(v servedView) error {
	text := []byte(strings.Join(v.URLs, "\n"))
	if a.format == "json" {
		var err error
		if text, err = json.Marshal(v); err != nil {
			return err
		}
	}
	_, err := a.stdout.Write(append(text, '\n'))
	return err
}
