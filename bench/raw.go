package main

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// raw is the most that Redis can do: many tasks in one ZADD, and a claim that
// is nothing but reading, removing and adding to the active set. It is no
// queue; it is what the others are measured against.
type raw struct{ client *redis.Client }

const (
	rawBatch  = 100
	rawClaims = 4                     // in flight: enough to keep the server busy
	rawRest   = 10 * time.Millisecond // when nothing is left
)

var rawClaim = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local due = redis.call('ZRANGE', KEYS[1], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[1])
if #due == 0 then return due end
local leases = {}
for i, member in ipairs(due) do
  leases[2 * i - 1], leases[2 * i] = now + 30000, member
end
redis.call('ZADD', KEYS[2], unpack(leases))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, #due - 1)
return due`)

func openRaw(addr string) (System, error) {
	s := &raw{client: newRedis(addr)}
	return s, rawClaim.Load(context.Background(), s.client).Err()
}

func (s *raw) Schedule(ctx context.Context, t *Task) error { return s.ScheduleAll(ctx, []*Task{t}) }

func (s *raw) ScheduleAll(ctx context.Context, tasks []*Task) error {
	entries := make([]redis.Z, len(tasks))
	for i, t := range tasks {
		entries[i] = entry(t)
	}
	if tasks[0].Body == nil {
		return s.client.ZAdd(ctx, queueName(0), entries...).Err()
	}
	bodies := make([]any, 0, 2*len(tasks))
	for _, t := range tasks {
		bodies = append(bodies, t.Member, t.Body)
	}
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, "body", bodies...)
		p.ZAdd(ctx, queueName(0), entries...)
		return nil
	})
	return err
}

// Work claims only: nothing is acknowledged, whatever the slots.
func (s *raw) Work(ctx context.Context, _, _ int, handle func(string)) error {
	var claimers sync.WaitGroup
	for range rawClaims {
		claimers.Go(func() {
			for ctx.Err() == nil {
				members, _ := s.claim(ctx, rawBatch)
				for _, member := range members {
					handle(member)
				}
				if len(members) == 0 {
					sleepUntil(ctx, time.Now().Add(rawRest))
				}
			}
		})
	}
	claimers.Wait()
	return nil
}

func (s *raw) claim(ctx context.Context, max int) ([]string, error) {
	return rawClaim.EvalSha(ctx, s.client, []string{queueName(0), "active"}, max).StringSlice()
}

func (s *raw) Claim(ctx context.Context, max int) (Claimed, error) {
	members, err := s.claim(ctx, max)
	return Claimed{Members: members, Ack: func(ctx context.Context) error {
		return s.client.Del(ctx, "active").Err()
	}}, err
}

func (s *raw) Left(ctx context.Context) (int64, error) {
	return s.client.ZCard(ctx, queueName(0)).Result()
}
func (s *raw) Close() error { return s.client.Close() }
