package main

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// textbook is the delay queue of a hundred articles: ZADD, a poll by
// ZRANGEBYSCORE, and whoever succeeds with ZREM has the task.
type textbook struct {
	client *redis.Client
	claims atomic.Int64
}

const (
	textbookBatch = 100
	textbookPoll  = time.Second
)

func openTextbook(addr string) (System, error) {
	return &textbook{client: newRedis(addr)}, nil
}

// newRedis returns a client with go-redis' defaults.
func newRedis(addr string) *redis.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

func (s *textbook) Schedule(ctx context.Context, t *Task) error {
	if t.Body == nil {
		return s.client.ZAdd(ctx, queueName(0), entry(t)).Err()
	}
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		s.add(ctx, p, t)
		return nil
	})
	return err
}

// ScheduleAll is a pipeline of what Schedule sends.
func (s *textbook) ScheduleAll(ctx context.Context, tasks []*Task) error {
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, t := range tasks {
			s.add(ctx, p, t)
		}
		return nil
	})
	return err
}

func (s *textbook) add(ctx context.Context, p redis.Pipeliner, t *Task) {
	if t.Body != nil {
		p.Set(ctx, "body:"+t.Member, t.Body, 0)
	}
	p.ZAdd(ctx, queueName(0), entry(t))
}

func entry(t *Task) redis.Z { return redis.Z{Score: float64(t.milli()), Member: t.Member} }

func (s *textbook) Work(ctx context.Context, queues, slots int, handle func(string)) error {
	var pollers sync.WaitGroup
	for q := range queues {
		for range slots {
			pollers.Go(func() { s.poll(ctx, queueName(q), handle) })
		}
	}
	pollers.Wait()
	return nil
}

func (s *textbook) poll(ctx context.Context, queue string, handle func(string)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		due, _ := s.due(ctx, queue, textbookBatch)
		for _, member := range due {
			if n, _ := s.client.ZRem(ctx, queue, member).Result(); n == 1 {
				handle(member)
			}
		}
		if len(due) > 0 {
			continue
		}
		timer.Reset(textbookPoll)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

func (s *textbook) due(ctx context.Context, queue string, limit int) ([]string, error) {
	s.claims.Add(1)
	//lint:ignore SA1019 the articles write it so
	return s.client.ZRangeByScore(ctx, queue, &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(time.Now().UnixMilli(), 10), Count: int64(limit),
	}).Result()
}

// Claim reads, and removes one by one: a removed task is acknowledged.
func (s *textbook) Claim(ctx context.Context, max int) (Claimed, error) {
	due, err := s.due(ctx, queueName(0), max)
	c := Claimed{Ack: func(context.Context) error { return nil }}
	for _, member := range due {
		n, zremErr := s.client.ZRem(ctx, queueName(0), member).Result()
		if zremErr != nil {
			return c, zremErr
		}
		if n == 1 {
			c.Members = append(c.Members, member)
		}
	}
	return c, err
}

func (s *textbook) Claims() int64 { return s.claims.Load() }

func (s *textbook) Left(ctx context.Context) (int64, error) {
	return s.client.ZCard(ctx, queueName(0)).Result()
}
func (s *textbook) Close() error { return s.client.Close() }
