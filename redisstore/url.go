package redisstore

import (
	"cmp"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dueq/dueq"
)

const sentinelPort = "26379" // where a URL names none

// schemes are the ways to lay Redis out, by the scheme of a URL.
var schemes = map[string]struct{ tls, cluster, sentinel bool }{
	"redis":           {},
	"rediss":          {tls: true},
	"redis+cluster":   {cluster: true},
	"rediss+cluster":  {cluster: true, tls: true},
	"redis+sentinel":  {sentinel: true},
	"rediss+sentinel": {sentinel: true, tls: true},
}

// source is what a URL says.
type source struct {
	options redis.UniversalOptions
	prefix  string
}

// parseURL reads a URL. Its errors show nothing that may be a password.
func parseURL(raw string) (source, error) {
	var src source
	name, rest, isURL := strings.Cut(raw, "://")
	kind, known := schemes[name]
	if !isURL || !known {
		return src, badStore("is none of redis://, rediss://, redis+cluster://, rediss+cluster://, redis+sentinel:// and rediss+sentinel://")
	}
	first, others, err := splitHosts(rest)
	if err != nil {
		return src, err
	}
	u, err := url.Parse("redis://" + first)
	if err != nil {
		return src, badStore("is not a valid URL: " + unquoted(err))
	}
	if u.Host == "" && len(others) > 0 {
		return src, errEmptyHost
	}
	if kind.tls {
		u.Scheme = "rediss"
	}
	port := "6379"
	if kind.sentinel {
		port = sentinelPort
		u.Host = withPort([]string{u.Host}, port)[0]
		src.options.MasterName, u.Path = splitMaster(u.Path)
	}
	ca, err := src.takeParams(u)
	if err != nil {
		return src, err
	}
	ro, err := redis.ParseURL(u.String())
	if err != nil { // what it quotes may be a password with a slash in it
		return src, badStore("is not a valid URL: " + unquoted(err))
	}
	src.takeOptions(ro)
	src.options.Addrs = append([]string{ro.Addr}, withPort(others, port)...)
	src.options.IsClusterMode = kind.cluster
	if err := src.check(kind.sentinel); err != nil {
		return src, err
	}
	return src, src.trust(ca)
}

func badStore(reason string) error { return &dueq.FieldError{Field: "store", Reason: reason} }

var errEmptyHost = badStore("has an empty host between commas")

// unquoted is the text of the cause of an error up to what it quotes.
func unquoted(err error) string {
	var bad *url.Error
	if errors.As(err, &bad) { // the whole text may hold a password
		err = bad.Err
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	return strings.TrimSpace(text)
}

// splitHosts takes the hosts after the first out of a URL without its scheme.
func splitHosts(rest string) (first string, others []string, err error) {
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	if strings.Contains(rest[end:], "@") { // what is before it may be a password
		return "", nil, badStore("has an @ after a / ? or #; in a password these are written %2F, %3F and %23, elsewhere the @ is written %40")
	}
	user := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := strings.Split(rest[user:end], ",")
	for _, host := range hosts {
		if host == "" && len(hosts) > 1 {
			return "", nil, badStore("has an empty host between commas")
		}
		if _, err := url.Parse("redis://" + host); err != nil {
			return "", nil, badStore("is not a valid URL: " + unquoted(err))
		}
	}
	return rest[:user] + hosts[0] + rest[end:], hosts[1:], nil
}

// splitMaster cuts /master/db into the name and /db.
func splitMaster(path string) (master, db string) {
	master, db, found := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if found {
		db = "/" + db
	}
	return master, db
}

func withPort(hosts []string, port string) []string {
	out := slices.Clone(hosts)
	for i, host := range out {
		name, own, err := net.SplitHostPort(host)
		if err != nil {
			name = strings.Trim(host, "[]")
		}
		out[i] = net.JoinHostPort(name, cmp.Or(own, port))
	}
	return out
}

// takeParams takes the parameters that go-redis does not know out of a URL.
func (src *source) takeParams(u *url.URL) (ca string, err error) {
	params, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "", badStore("has parameters that cannot be read: " + unquoted(err))
	}
	for name, field := range map[string]*string{
		"prefix": &src.prefix, "ca": &ca,
		"sentinel_user": &src.options.SentinelUsername, "sentinel_password": &src.options.SentinelPassword,
	} {
		*field = params.Get(name)
		params.Del(name)
	}
	u.RawQuery = params.Encode()
	return ca, nil
}

// takeOptions takes over what go-redis read.
func (src *source) takeOptions(ro *redis.Options) {
	o := &src.options
	o.Username, o.Password, o.DB, o.Protocol, o.ClientName = ro.Username, ro.Password, ro.DB, ro.Protocol, ro.ClientName
	o.PoolFIFO, o.PoolSize, o.MaxConcurrentDials = ro.PoolFIFO, ro.PoolSize, ro.MaxConcurrentDials
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = ro.MinIdleConns, ro.MaxIdleConns, ro.MaxActiveConns
	o.ConnMaxIdleTime, o.ConnMaxLifetime, o.ConnMaxLifetimeJitter = ro.ConnMaxIdleTime, ro.ConnMaxLifetime, ro.ConnMaxLifetimeJitter
	o.TLSConfig = ro.TLSConfig
	if o.TLSConfig != nil {
		o.TLSConfig.ServerName = "" // each server by its own name
	}
}

// check refuses what the layout has no use for.
func (src *source) check(sentinel bool) error {
	o := &src.options
	switch {
	case sentinel && o.MasterName == "":
		return badStore("names no master, as in redis+sentinel://HOST:PORT,HOST:PORT/MASTER")
	case len(o.Addrs) > 1 && !o.IsClusterMode && !sentinel:
		return badStore("names several hosts, which redis+cluster:// and redis+sentinel:// take")
	case o.IsClusterMode && o.DB != 0:
		return badStore("names a database, but a cluster has only database 0")
	case !sentinel && (o.SentinelUsername != "" || o.SentinelPassword != ""):
		return badStore("has a sentinel's user or password, but no sentinels")
	}
	for _, addr := range o.Addrs {
		if host, _, err := net.SplitHostPort(addr); err != nil || host == "" {
			return errEmptyHost
		}
	}
	return nil
}

// trust makes certificates count that a CA in a file has signed, and no other.
func (src *source) trust(file string) error {
	if file == "" {
		return nil
	}
	if src.options.TLSConfig == nil {
		return badStore("has a ca, but only rediss:// uses TLS")
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return badStore("names a ca that cannot be read: " + err.Error())
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return badStore("names a ca, " + file + ", that holds no certificate")
	}
	src.options.TLSConfig.RootCAs = pool
	return nil
}

// connect makes the client. A script that may have run is never sent twice,
// and whoever waits decides when to dial again.
func (src *source) connect(timeout time.Duration) redis.UniversalClient {
	o := src.options
	o.ContextTimeoutEnabled = true
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = timeout, timeout, timeout, timeout
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if o.Protocol == 2 {
		o.Dialer = dialRESP2(&redis.Options{DialTimeout: timeout, TLSConfig: o.TLSConfig})
	}
	switch {
	case o.MasterName != "":
		return redis.NewFailoverClient(o.Failover())
	case o.IsClusterMode:
		cluster := o.Cluster()
		cluster.DisableRoutingPolicies = true // they would ask for COMMAND, and every command names its keys
		cluster.ClusterStateReloadInterval = 10 * time.Second
		return redis.NewClusterClient(cluster)
	}
	return redis.NewClient(o.Simple())
}
