package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// listenAll listens on all addresses or on none.
func listenAll(addresses []string) ([]net.Listener, error) {
	var all []net.Listener
	for _, address := range addresses {
		l, err := listen(address)
		if err != nil {
			closeAll(all)
			return nil, fmt.Errorf("cannot listen on %s: %w", address, cause(err))
		}
		all = append(all, l)
	}
	return all, nil
}

func closeAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}

func listen(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	l, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(path) {
		l, err = net.Listen("unix", path)
	}
	return l, err
}

// abandoned removes a socket whose process is gone, as a kill leaves it.
func abandoned(path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) && os.Remove(path) == nil
}

// cause leaves out what an error of package net repeats.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return err
}
