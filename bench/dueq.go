package main

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/redisstore"
	"github.com/dueq/dueq/sqlitestore"
)

// dueqQueue is dueq on any store, by Client and Worker with default settings.
type dueqQueue struct {
	store  dueq.Store
	client *dueq.Client
	claims atomic.Int64
}

func openDueqRedis(addr string) (System, error) {
	store, err := redisstore.Open("redis://"+addr, redisstore.Options{})
	return newDueq(store, err)
}

func openDueqSQLite(path string) (System, error) {
	store, err := sqlitestore.Open(path, sqlitestore.Options{})
	return newDueq(store, err)
}

func newDueq(store dueq.Store, err error) (System, error) {
	if err != nil {
		return nil, err
	}
	return &dueqQueue{store: store, client: dueq.NewClient(store, dueq.ClientOptions{})}, nil
}

func (s *dueqQueue) Schedule(ctx context.Context, t *Task) error {
	_, err := s.client.Schedule(ctx, queueName(t.Queue), taskOf(t), whenOf(t))
	return err
}

func (s *dueqQueue) ScheduleAll(ctx context.Context, tasks []*Task) error {
	items := make([]dueq.Item, len(tasks))
	for i, t := range tasks {
		items[i] = dueq.Item{Queue: queueName(t.Queue), Task: taskOf(t), When: whenOf(t)}
	}
	outcomes, err := s.client.ScheduleAll(ctx, items)
	for i := 0; err == nil && i < len(outcomes); i++ {
		err = outcomes[i].Error()
	}
	return err
}

func taskOf(t *Task) dueq.Task { return dueq.Task{ID: t.ID, Kind: kind, Body: t.Body} }

func whenOf(t *Task) dueq.When {
	if t.After > 0 {
		return dueq.In(t.After)
	}
	return dueq.At(t.Due)
}

func (s *dueqQueue) Work(ctx context.Context, queues, slots int, handle func(string)) error {
	worker := dueq.NewWorker(s.store, dueq.WorkerOptions{
		Concurrency: slots,
		Logger:      slog.New(slog.DiscardHandler),
		Observer:    dueq.Observer{Call: s.count},
	})
	for i := range queues {
		worker.Handle(queueName(i), dueq.AnyKind, dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
			handle(t.ID)
			return nil
		}))
	}
	return worker.Run(ctx)
}

func (s *dueqQueue) count(op, _ string, _ int, _ time.Duration, _ error) {
	if op == "claim" {
		s.claims.Add(1)
	}
}

func (s *dueqQueue) Claims() int64 { return s.claims.Load() }

func (s *dueqQueue) Claim(ctx context.Context, max int) (Claimed, error) {
	claim, err := s.store.Claim(ctx, dueq.ClaimRequest{Queue: queueName(0), Max: max})
	c := Claimed{Members: make([]string, len(claim.Tasks))}
	results := make([]dueq.Result, len(claim.Tasks))
	for i, t := range claim.Tasks {
		c.Members[i], results[i].Task = t.ID, t
	}
	c.Ack = func(ctx context.Context) error {
		_, err := s.store.Settle(ctx, queueName(0), results)
		return err
	}
	return c, err
}

func (s *dueqQueue) Left(ctx context.Context) (int64, error) {
	stats, err := s.store.Stats(ctx)
	var left int64
	for _, q := range stats {
		left += q.Scheduled + q.Active + q.Dead
		err = errors.Join(err, q.Err)
	}
	return left, err
}

func (s *dueqQueue) Close() error { return s.store.Close() }
