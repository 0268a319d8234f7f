package redisstore

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

var _ dueq.Prober = (*Store)(nil)

// probeSlots is how many keys are tried to find one on each server of a cluster.
const probeSlots = 64

// Probe implements dueq.Prober.
func (s *Store) Probe(ctx context.Context) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	if s.cluster == nil {
		return s.probeAt(ctx, s.client, s.probeKey())
	}
	return s.probeAny(ctx)
}

// probeAt writes with a command that a full server refuses, unlike PING.
func (s *Store) probeAt(ctx context.Context, to node, key string) error {
	err := s.doAt(ctx, to, redis.NewIntCmd(ctx, "hset", key, "at_ms", time.Now().UnixMilli()))
	if err != nil {
		return s.wrap(ctx, "probe", nil, err)
	}
	return nil
}

// probeAny writes to each server of a cluster and has no error if one took it.
func (s *Store) probeAny(ctx context.Context) error {
	failures := make(chan error, probeSlots)
	var asked []*redis.Client
	var group sync.WaitGroup
	for n := range probeSlots {
		key := s.probeKey() + ":" + strconv.Itoa(n)
		to, err := s.cluster.MasterForKey(ctx, key)
		if err != nil {
			return s.wrap(ctx, "probe", nil, err)
		}
		if !slices.Contains(asked, to) {
			asked = append(asked, to)
			group.Go(func() { failures <- s.probeAt(ctx, to, key) })
		}
	}
	group.Wait()
	var err error
	for range asked {
		if err = <-failures; err == nil {
			return nil
		}
	}
	return err
}
