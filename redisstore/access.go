package redisstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// needed are the commands without which some call fails: those of the scripts
// and those sent beside them. INFO, SCRIPT LOAD, SUBSCRIBE and PUBLISH only
// make things better.
var needed = []any{
	"eval", "evalsha", "exists", "hdel", "hexists", "hget", "hgetall", "hincrby", "hlen", "hmget", "hset", "hstrlen",
	"ping", "sadd", "smembers", "time", "type",
	"zadd", "zcard", "zcount", "zintercard", "zmscore", "zrange", "zrem", "zremrangebyrank", "zremrangebyscore", "zscore",
}

var accessScript = newScript(read("access"))

// checkAccess finds out now whether this user may run all that is needed. What
// else fails, calls will say, and it may be gone by then.
func (s *Store) checkAccess(ctx context.Context) error {
	in := &invocation{script: accessScript, keys: newKeys(s.prefix, "open", &peer{}), args: needed}
	s.run(ctx, []*invocation{in})
	if isDenied(in.err) { // perhaps EVALSHA only
		refused := in.err
		if s.exec(ctx, []*invocation{in}, (*invocation).eval); isDenied(in.err) {
			return s.wrap(ctx, "open", nil, fmt.Errorf("%w; needed are %s", refused, strings.Join(texts(needed), ", ")))
		}
	}
	if in.err == nil && len(in.reply) > 0 {
		return s.wrap(ctx, "open", nil, &deniedError{texts(in.reply)})
	}
	return nil
}

func isDenied(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOPERM") }

// deniedError names what a user would need.
type deniedError struct{ commands []string }

func (e *deniedError) Error() string {
	return "NOPERM this user may not run " + strings.Join(e.commands, ", ")
}

// RedisError marks it as an answer of the server.
func (*deniedError) RedisError() {}

func texts(values []any) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = fmt.Sprint(v)
	}
	return out
}
