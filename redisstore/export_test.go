package redisstore

import "github.com/redis/go-redis/v9"

// CheckVersion is the check that Open makes of INFO server.
var CheckVersion = checkVersion

// NeededCommands are what Open asks a user's rights for.
func NeededCommands() []string { return texts(needed) }

// ParseURL is what Open reads in a URL.
func ParseURL(raw string) (options redis.UniversalOptions, prefix string, err error) {
	src, err := parseURL(raw)
	return src.options, src.prefix, err
}
