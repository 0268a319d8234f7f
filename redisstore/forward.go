package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

var _ dueq.Forwarder = (*Store)(nil)

// Forward implements dueq.Forwarder. In a Cluster the destination must be in
// the slot of the queue, which {K}:… is for K, prefix and queue. It does not
// wait for replicas: consumers may have taken what a failover gives back.
func (s *Store) Forward(ctx context.Context, req dueq.ForwardRequest) (dueq.Forwarded, error) {
	if err := validMax(req.Queue, req.Max); err != nil {
		return dueq.Forwarded{}, err
	}
	to, err := s.destination(req)
	if err != nil {
		return dueq.Forwarded{}, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	in := &invocation{script: forwardScript, keys: s.keysOf(req.Queue), extra: []any{to.key}}
	reply, err := s.handOut(ctx, "forward", in, s.wakeChannel(), req.Queue, req.Max, to.kind)
	if err != nil {
		return dueq.Forwarded{}, to.explain(err)
	}
	clock := reply[1].(int64)
	return dueq.Forwarded{
		Count: int(reply[2].(int64)), Now: time.UnixMicro(clock),
		Wait: waitOf(reply[3], clock), Previous: previousOf(reply[4]), Paused: reply[5].(int64) == 1,
	}, nil
}

// destination is where tasks are moved: a list or a stream.
type destination struct{ kind, key, own string }

// outKey is where a queue's tasks are moved if no key is named.
const outKey = "out"

func (s *Store) destination(req dueq.ForwardRequest) (destination, error) {
	stream, key, err := dueq.ParseDestination(req.Destination)
	if err != nil {
		return destination{}, &dueq.FieldError{Field: "destination", Reason: err.Error()}
	}
	k := s.prefix + req.Queue
	to := destination{kind: "list", key: key, own: sideOf(k) + outKey}
	if stream {
		to.kind = "stream"
	}
	switch {
	case key == "":
		to.key = to.own
	case s.keeps(key):
		return to, to.refuse("is a name that dueq gives to keys of its own")
	case s.cluster != nil && hashTag(key) != k:
		return to, to.refuse("is in another slot than the queue")
	}
	return to, nil
}

// refuse names a key that would do.
func (to destination) refuse(reason string) error {
	return &dueq.FieldError{Field: "destination", Reason: fmt.Sprintf("%s %s; take %s:%s, which %s alone stands for", to.key, reason, to.kind, to.own, to.kind)}
}

// keeps says whether a key has a name that some queue's data has or may get,
// or that all of them have in common.
func (s *Store) keeps(key string) bool {
	if name, ok := strings.CutPrefix(key, s.prefix); ok {
		return ours(name)
	}
	name, side, beside := strings.Cut(strings.TrimPrefix(key, "{"+s.prefix), "}:")
	return beside && ours(name) && reserved(side)
}

// ours: a queue, one of its partitions, or what begins with an @.
func ours(name string) bool {
	queue, _, _ := strings.Cut(name, "@")
	return queue == "" || dueq.ValidateQueue(queue) == nil
}

// reserved: what a queue keeps beside its tasks, now or one day.
func reserved(side string) bool {
	switch side {
	case "active", "next", "dead", "body", "tries", "error", "settings", "stats", "meta", "canary", "claims", "replayed":
		return true
	}
	return strings.HasPrefix(side, "trace:")
}

// hashTag is what a cluster hashes of a key.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// explain says what is wrong with a destination that the server refused.
func (to destination) explain(err error) error {
	var call *dueq.CallError
	if !errors.As(err, &call) {
		return err
	}
	switch cause := call.Err; {
	case redis.HasErrorPrefix(cause, "DESTINATION"):
		_, found, _ := strings.Cut(cause.Error(), " ")
		call.Err = &dueq.FieldError{Field: "destination", Reason: fmt.Sprintf("%s is a %s, not a %s", to.key, found, to.kind)}
	case redis.HasErrorPrefix(cause, "CROSSSLOT"):
		call.Err = to.refuse("is in another slot than the queue")
	case isDenied(cause):
		command := map[string]string{"list": "rpush", "stream": "xadd"}[to.kind]
		call.Err = fmt.Errorf("%w; to move tasks it needs +%s and ~%s", cause, command, to.key)
	}
	return err
}
