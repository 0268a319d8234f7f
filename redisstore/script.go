package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

//go:embed lua/*.lua
var lua embed.FS

// script is one transition: the file of its name, with what it builds on put
// in after the first line.
type script struct {
	source string
	sha    string
	names  bool // a queue it runs on is one to be listed
}

var (
	scheduleScript = load("schedule")
	claimScript    = load("claim", "member", "run")
	settleScript   = load("settle", "run")
	extendScript   = load("extend")
	changeScript   = load("change")
	getScript      = load("get", "info")
	listScript     = load("list", "info")
	statsScript    = load("stats")
	settingsScript = load("settings")
)

var scripts = []*script{scheduleScript, claimScript, settleScript, extendScript, changeScript,
	getScript, listScript, statsScript, settingsScript}

func init() {
	scheduleScript.names, claimScript.names, settingsScript.names = true, true, true
}

func load(name string, parts ...string) *script {
	shebang, body, _ := strings.Cut(read(name), "\n")
	var b strings.Builder
	b.WriteString(shebang + "\n")
	for _, part := range append([]string{"common"}, parts...) {
		b.WriteString(read(part))
	}
	b.WriteString(body)
	return newScript(b.String())
}

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

func read(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(fmt.Sprintf("redisstore: %v", err)) // the file is part of the program
	}
	return string(text)
}

// command is a call that is sent at most once, whatever the client's retry
// settings: a repeated claim would lease tasks to nobody.
type command struct{ *redis.Cmd }

// NoRetry keeps the client from sending the command again.
func (command) NoRetry() bool { return true }

// answer is what a script replied. When a server of a cluster keeps a pipeline
// until the context ends, go-redis puts that error on the commands that others
// have answered, too.
func (c command) answer() ([]any, error) {
	if reply, ok := c.Val().([]any); ok {
		return reply, nil
	}
	return c.Slice()
}

// invocation is one script on one queue, and its answer.
type invocation struct {
	script *script
	keys   *keys
	args   []any
	reply  []any
	err    error

	where    func(dueq.Settings) bool // on which queues it waits for replicas; nil for none
	replicas int                      // that must have what it wrote, or unknown; see replica.go
}

func (in *invocation) waits() bool { return in.replicas > 0 }

func (in *invocation) evalsha() command { return in.prepare("evalsha", in.script.sha) }
func (in *invocation) eval() command    { return in.prepare("eval", in.script.source) }

func (in *invocation) prepare(verb, script string) command {
	args := make([]any, 0, 3+keyCount+len(in.args))
	args = append(args, verb, script, keyCount)
	args = append(args, in.keys.names[:]...)
	args = append(args, in.args...)
	return command{redis.NewCmd(context.Background(), args...)}
}

func noScript(err error) bool {
	return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
}
