// Package config reads what dueq serve is told: one YAML file, the environment
// and flags, into one Config that is right as a whole or refused with
// everything that is wrong with it.
package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

// Config is all that dueq serve can be told. Its keys in a file are those of
// the tags; docs/config.md lists them.
type Config struct {
	Store          string        `koanf:"store"`             // URL; as of openstore.Open
	Prefix         string        `koanf:"prefix"`            // of keys in Redis; empty is the store's default
	Listen         []string      `koanf:"listen"`            // HOST:PORT, where port 0 is any, or unix:PATH
	AnyHost        bool          `koanf:"insecure_any_host"` // without tokens serve others than this machine
	TrustedOrigins []string      `koanf:"trusted_origins"`   // whose pages may change things: https://HOST[:PORT]
	Tokens         []Token       `koanf:"tokens"`            // none: everybody who gets here may do everything
	Limits         Limits        `koanf:"limits"`            // of requests
	Push           Push          `koanf:"push"`              // posting due tasks
	Metrics        Metrics       `koanf:"metrics"`           // at /metrics
	Log            Log           `koanf:"log"`               // on stderr
	Drain          time.Duration `koanf:"drain"`             // from the signal to stop until nothing new is accepted
	Grace          time.Duration `koanf:"grace"`             // for what runs then

	origins  map[string]origin
	warnings []string
}

// Token is what a caller may do who sends its secret.
type Token struct {
	Name   string   `koanf:"name"`   // in logs; letters, digits and . _ -, at most 64
	Hash   string   `koanf:"hash"`   // of the secret: sha256:HEX, as dueq token prints it
	Scopes []string `koanf:"scopes"` // of Scopes
	Queues []string `koanf:"queues"` // patterns, where * is any text; empty is all queues
}

// Scopes are what a token can allow.
var Scopes = []string{"publish", "consume", "read", "admin"}

// Limits keep a caller from taking the server for itself.
type Limits struct {
	Member        int           `koanf:"member"`         // bytes of a task's member
	Header        Size          `koanf:"header"`         // of a request, all lines
	HeaderTimeout time.Duration `koanf:"header_timeout"` // to send it
	IdleTimeout   time.Duration `koanf:"idle_timeout"`   // between two requests of a connection
	OpenPolls     int           `koanf:"open_polls"`     // claims that wait at once
	OpenStreams   int           `koanf:"open_streams"`   // streams of hints at once
}

// Push is about queues whose setting push is an address.
type Push struct {
	Secrets         []PushSecret  `koanf:"secrets"`          // the first one that matches counts
	Unsigned        bool          `koanf:"unsigned"`         // those that none matches are pushed too
	AllowPrivate    bool          `koanf:"allow_private"`    // addresses of this machine and of private networks
	AllowedNetworks []string      `koanf:"allowed_networks"` // those of them that are allowed, as 10.0.0.0/8
	Timeout         time.Duration `koanf:"timeout"`          // of one delivery, within the queue's; zero is that
}

// PushSecret signs what is posted from the queues that match.
type PushSecret struct {
	Queue       string   `koanf:"queue"`        // pattern, where * is any text
	Secrets     []string `koanf:"secrets"`      // whsec_…; two while one takes the place of the other, the newer first
	SecretsFile string   `koanf:"secrets_file"` // that has them, one a line, instead
}

// Metrics are for Prometheus.
type Metrics struct {
	Enabled   bool `koanf:"enabled"`
	MaxQueues int  `koanf:"max_queues"` // those with series of their own
}

// Log says what goes to stderr.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
}

// Default returns what holds where nothing is set. The store is the caller's
// to name: Sources.Store.
func Default() Config {
	return Config{
		Listen: []string{"127.0.0.1:8080"},
		Limits: Limits{
			Member: dueq.DefaultMemberMax, Header: 32 << 10, HeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
			OpenPolls: 10_000, OpenStreams: 1000,
		},
		Metrics: Metrics{Enabled: true, MaxQueues: 200},
		Log:     Log{Level: "info", Format: "text"},
		Grace:   30 * time.Second,
	}
}

// Warnings are what is allowed and may be a mistake.
func (c Config) Warnings() []string { return c.warnings }

// Size is a number of bytes. It is written as one, or in KiB or MiB: 64KiB.
type Size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// ParseSize reads 64KiB, 4MiB or a number of bytes.
func ParseSize(s string) (Size, error) {
	for _, unit := range sizeUnits {
		number, ok := strings.CutSuffix(s, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(number, 10, 32)
		if err == nil && n >= 0 && strconv.FormatInt(n, 10) == number {
			return Size(n * unit.bytes), nil
		}
		break
	}
	return 0, fmt.Errorf("%q is not a size like 64KiB, 4MiB or a number of bytes", s)
}

func (s Size) String() string {
	for _, unit := range sizeUnits {
		if n := int64(s); n > 0 && n%unit.bytes == 0 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
