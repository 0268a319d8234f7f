package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
)

// source is what --from names.
type source struct {
	name string
	file io.Reader
	size int64 // in bytes; -1 is unknown

	closeFile func() error // nil if it was not opened here
}

func (a *app) openFrom(name string) (*source, error) {
	if name == "-" {
		return &source{name: "stdin", file: a.stdin, size: -1}, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, badFrom(name, err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = &os.PathError{Op: "read", Path: name, Err: errors.New("it is a directory")}
	case info.Mode().IsRegular():
		return &source{name, file, info.Size(), file.Close}, nil
	default: // a pipe
		return &source{name, file, -1, file.Close}, nil
	}
	file.Close()
	return nil, badFrom(name, err)
}

// Close closes a file that openFrom opened.
func (s *source) Close() {
	if s.closeFile != nil {
		_ = s.closeFile()
	}
}

// again returns the source as a file that can be read twice: stdin and pipes
// are copied to a temporary one, which remove takes away.
func (s *source) again(ctx context.Context) (file *os.File, remove func(), err error) {
	if file, ok := s.file.(*os.File); ok && s.size >= 0 {
		return file, func() {}, nil
	}
	spool, err := os.CreateTemp("", "dueq-schedule-*")
	if err != nil {
		return nil, nil, err
	}
	_ = os.Remove(spool.Name()) // where the system lets it go early, a kill leaves nothing
	remove = func() {
		spool.Close()
		_ = os.Remove(spool.Name())
	}
	copied := make(chan error, 1)
	go func() { // which stays until the process ends if the read hangs
		_, err := io.Copy(spool, s.file)
		copied <- err
	}()
	select {
	case err = <-copied:
	case <-ctx.Done():
		err = errInterrupted
	}
	if err == nil {
		_, err = spool.Seek(0, io.SeekStart)
	}
	if err != nil {
		remove()
		return nil, nil, err
	}
	return spool, remove, nil
}

// counted counts the bytes read.
type counted struct {
	r io.Reader
	n atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}
