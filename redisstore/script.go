package redisstore

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

//go:embed lua/*.lua
var lua embed.FS

// script is one transition: the file of its name, with what it includes.
type script struct {
	source string
	sha    string
	names  bool // a queue it runs on is one to be listed
}

var (
	scheduleScript = load("schedule")
	claimScript    = load("claim")
	forwardScript  = load("forward")
	settleScript   = load("settle")
	extendScript   = load("extend")
	changeScript   = load("change")
	getScript      = load("get")
	listScript     = load("list")
	statsScript    = load("stats")
	settingsScript = load("settings")
)

var scripts = []*script{scheduleScript, claimScript, forwardScript, settleScript, extendScript, changeScript,
	getScript, listScript, statsScript, settingsScript}

func init() {
	for _, s := range []*script{scheduleScript, claimScript, forwardScript, settingsScript} {
		s.names = true
	}
}

// include is a line of a script that stands for another file. What is defined
// there costs time in every call, so scripts include it where they need it.
var include = regexp.MustCompile(`(?m)^-- include ([a-z]+)$\n`)

// flags begin a script. Of what it includes they do not count.
var flags = regexp.MustCompile(`^#!.*\n`)

func load(name string) *script { return newScript(expand(read(name))) }

func expand(text string) string {
	return include.ReplaceAllStringFunc(text, func(line string) string {
		return expand(flags.ReplaceAllString(read(include.FindStringSubmatch(line)[1]), ""))
	})
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
	extra  []any // keys beside those of the queue, in the same slot
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
	count := keyCount + len(in.extra)
	args := make([]any, 0, 3+count+len(in.args))
	args = append(args, verb, script, count)
	args = append(args, in.keys.names[:]...)
	args = append(args, in.extra...)
	args = append(args, in.args...)
	return command{redis.NewCmd(context.Background(), args...)}
}

func noScript(err error) bool {
	return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
}
