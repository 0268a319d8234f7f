package redisstore

import "strconv"

// DefaultPrefix begins every key unless Options say otherwise.
const DefaultPrefix = "delay:"

// keyCount is how many KEYS every script has; core.lua names them.
const keyCount = 9

// keys are the names that one queue's scripts touch, all in one cluster slot:
// Redis hashes the inside of the first braces, and the plain key has none.
type keys struct {
	queue string
	names [keyCount]any
	peer  *peer
}

func newKeys(prefix, queue string, peer *peer) *keys {
	k := prefix + queue
	side := sideOf(k)
	return &keys{queue: queue, peer: peer, names: [keyCount]any{
		k, side + "active", side + "next", side + "dead",
		side + "body", side + "tries", side + "error", side + "settings", side + "stats",
	}}
}

// sideOf begins the keys beside that of a queue.
func sideOf(k string) string { return "{" + k + "}:" }

// Types of the keys, in the order of names.
var keyTypes = [keyCount]string{"zset", "zset", "zset", "zset", "hash", "hash", "hash", "hash", "hash"}

const settingsKey = 7 // place in names

// keysOf returns the keys of a queue, made once.
func (s *Store) keysOf(queue string) *keys {
	if k, ok := s.keys.Load(queue); ok {
		return k.(*keys)
	}
	p := s.peer
	if p == nil {
		p = &peer{}
	}
	k, _ := s.keys.LoadOrStore(queue, newKeys(s.prefix, queue, p))
	return k.(*keys)
}

// The keys that belong to no queue. No queue can have these names.
func (s *Store) queuesKey() string   { return s.prefix + "@queues" }
func (s *Store) versionsKey() string { return s.prefix + "@settings" }
func (s *Store) wakeChannel() string { return s.prefix + "@wake" }
func (s *Store) probeKey() string    { return s.prefix + "@probe" }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
