package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/beanstalkd/go-beanstalk"
)

// beanstalkdQueue is beanstalkd with its Go client. A connection serves one
// call at a time, so each caller takes one. A job has a number and no name;
// the member stands in its body. Delays are whole seconds, rounded up here so
// that nothing is early.
type beanstalkdQueue struct {
	addr string
	idle sync.Pool // of *beanstalk.Conn

	mu  sync.Mutex // guards all
	all []*beanstalk.Conn
}

const (
	jobPriority = 1024
	jobTTR      = 30 * time.Second
	reserveWait = time.Second // the shortest the protocol knows besides none
)

func openBeanstalkd(addr string) (System, error) { return &beanstalkdQueue{addr: addr}, nil }

func (s *beanstalkdQueue) Schedule(_ context.Context, t *Task) error {
	conn, err := s.take()
	if err != nil {
		return err
	}
	defer s.idle.Put(conn)
	seconds := (t.delay() + time.Second - 1).Truncate(time.Second)
	tube := beanstalk.NewTube(conn, tubeName(0))
	_, err = tube.Put(append([]byte(t.Member), t.Body...), jobPriority, seconds, jobTTR)
	return err
}

// tubeName is a queue's name without the colon, which tubes may not have.
func tubeName(i int) string { return "order-close" + strconv.Itoa(i) }

func (s *beanstalkdQueue) take() (*beanstalk.Conn, error) {
	if conn, ok := s.idle.Get().(*beanstalk.Conn); ok {
		return conn, nil
	}
	conn, err := beanstalk.Dial("tcp", s.addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.all = append(s.all, conn)
	s.mu.Unlock()
	return conn, nil
}

func (s *beanstalkdQueue) Work(ctx context.Context, queues, slots int, handle func(string)) error {
	var workers sync.WaitGroup
	errs := make(chan error, slots)
	for range slots {
		workers.Go(func() { errs <- s.workOne(ctx, queues, handle) })
	}
	workers.Wait()
	return <-errs
}

func (s *beanstalkdQueue) workOne(ctx context.Context, queues int, handle func(string)) error {
	conn, err := s.take()
	if err != nil {
		return err
	}
	names := make([]string, queues)
	for i := range names {
		names[i] = tubeName(i)
	}
	tubes := beanstalk.NewTubeSet(conn, names...)
	for ctx.Err() == nil {
		id, body, err := tubes.Reserve(reserveWait)
		if errors.Is(err, beanstalk.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		handle(string(body[:len(memberOf(0))]))
		if err := conn.Delete(id); err != nil {
			return err
		}
	}
	return nil
}

func (s *beanstalkdQueue) Left(context.Context) (int64, error) {
	conn, err := s.take()
	if err != nil {
		return 0, err
	}
	stats, err := beanstalk.NewTube(conn, tubeName(0)).Stats()
	if errors.Is(err, beanstalk.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var left int64
	for _, state := range []string{"ready", "delayed", "reserved", "buried"} {
		n, err := strconv.ParseInt(stats["current-jobs-"+state], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("beanstalkd: stats of jobs %s: %w", state, err)
		}
		left += n
	}
	return left, nil
}

func (s *beanstalkdQueue) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, conn := range s.all {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
