package main

import (
	"context"
	"slices"

	"github.com/hibiken/asynq"
)

// asynqQueue is hibiken/asynq. It has no batch form.
type asynqQueue struct {
	redis  asynq.RedisClientOpt
	client *asynq.Client
}

func openAsynq(addr string) (System, error) {
	opt := asynq.RedisClientOpt{Addr: addr}
	return &asynqQueue{opt, asynq.NewClient(opt)}, nil
}

func (s *asynqQueue) Schedule(ctx context.Context, t *Task) error {
	when := asynq.ProcessAt(t.Due)
	if t.After > 0 {
		when = asynq.ProcessIn(t.After)
	}
	_, err := s.client.EnqueueContext(ctx, asynq.NewTask(kind, t.Body), asynq.TaskID(t.Member), asynq.Queue(queueName(0)), when)
	return err
}

func (s *asynqQueue) Work(ctx context.Context, queues, slots int, handle func(string)) error {
	config := asynq.Config{Concurrency: slots, Queues: map[string]int{}, LogLevel: asynq.FatalLevel}
	for i := range queues {
		config.Queues[queueName(i)] = 1
	}
	server := asynq.NewServer(s.redis, config)
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		handle(id)
		return nil
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

func (s *asynqQueue) Left(context.Context) (int64, error) {
	inspector := asynq.NewInspector(s.redis)
	defer inspector.Close()
	queues, err := inspector.Queues()
	if err != nil || !slices.Contains(queues, queueName(0)) {
		return 0, err
	}
	info, err := inspector.GetQueueInfo(queueName(0))
	if err != nil {
		return 0, err
	}
	return int64(info.Size), nil
}

func (s *asynqQueue) Close() error { return s.client.Close() }
