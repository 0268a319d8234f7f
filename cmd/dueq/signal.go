package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// stopOnSignal returns a context that ends at the first SIGINT or SIGTERM. A
// second one calls abort and exits at once with code 1. release ends the watch.
func (a *app) stopOnSignal(ctx context.Context, abort func()) (stopped context.Context, release func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		a.watch(signals, done, cancel, abort)
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		<-ended
		cancel()
	}
}

func (a *app) watch(signals <-chan os.Signal, done <-chan struct{}, first, second func()) {
	select {
	case <-signals:
		first()
	case <-done:
		return
	}
	select {
	case <-signals:
		second()
		a.exit(1)
	case <-done:
	}
}
