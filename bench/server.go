package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/beanstalkd/go-beanstalk"
	"github.com/redis/go-redis/v9"
)

// Server is what a system keeps its tasks in, started for one measurement.
type Server interface {
	Addr() string
	Usage(ctx context.Context) (Usage, error)
	// Listen counts what clients send within d.
	Listen(ctx context.Context, d time.Duration) (Traffic, error)
	Stop()
}

// Usage is what a server did since it started.
type Usage struct {
	CPU      float64 // seconds
	Commands int64   // those inside scripts too, ours not
	Memory   int64   // bytes

	Micros map[string]float64 // by part of the commands, see parts
}

// Traffic is what clients sent.
type Traffic struct {
	Commands int64 // those inside scripts not
	Trips    int64 // bursts: commands of one connection with no pause between, as in a pipeline
}

const startPatience = 10 * time.Second

// freePort returns a port that nobody listens on, outside the range Linux gives
// to outgoing connections.
func freePort() (int, error) {
	for range 1000 {
		port := 10_000 + rand.IntN(20_000)
		l, err := net.Listen("tcp", addrOf(port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port found")
}

func addrOf(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// listen starts a program that listens on a free port, in a directory of its
// own that goes when it is stopped.
func listen(args func(port int) []string) (*listener, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dueq-bench-")
	if err != nil {
		return nil, err
	}
	command := args(port)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	l := &listener{addr: addrOf(port), dir: dir}
	if l.process, err = startProcess(cmd); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := l.await(); err != nil {
		l.Stop()
		return nil, fmt.Errorf("%s: %w", command[0], err)
	}
	return l, nil
}

type listener struct {
	addr, dir string
	process   *process
}

func (l *listener) Addr() string { return l.addr }

func (l *listener) Stop() {
	l.process.kill()
	_ = os.RemoveAll(l.dir)
}

// await waits until the program takes connections.
func (l *listener) await() error {
	for began := time.Now(); time.Since(began) < startPatience; {
		conn, err := net.Dial("tcp", l.addr)
		if err == nil {
			return conn.Close()
		}
		if l.process.ended(5 * time.Millisecond) {
			return errors.New("ended at once")
		}
	}
	return errors.New("does not answer")
}

// redisServer is a redis-server that keeps nothing on disk.
type redisServer struct {
	*listener
	client *redis.Client
}

func startRedis() (Server, error) {
	l, err := listen(func(port int) []string {
		return []string{"redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"}
	})
	if err != nil {
		return nil, err
	}
	return &redisServer{l, redis.NewClient(&redis.Options{Addr: l.addr, DisableIdentity: true})}, nil
}

func (s *redisServer) Stop() {
	_ = s.client.Close()
	s.listener.Stop()
}

func (s *redisServer) Usage(ctx context.Context) (Usage, error) {
	text, err := s.client.InfoMap(ctx, "cpu", "commandstats", "memory").Result()
	if err != nil {
		return Usage{}, err
	}
	info := make(map[string]string)
	u := Usage{Micros: make(map[string]float64)}
	for _, section := range text {
		for key, value := range section {
			info[key] = value
			u.Commands += calls(key, value)
			if name, ok := strings.CutPrefix(key, "cmdstat_"); ok {
				u.Micros[partOf(name)] += field(value, "usec=")
			}
		}
	}
	u.CPU = number(info["used_cpu_user"]) + number(info["used_cpu_sys"])
	u.Memory = int64(number(info["used_memory"]))
	return u, nil
}

// aside are commands of connections and of this driver, not of the work.
var aside = []string{"info", "hello", "client", "monitor", "ping", "select", "config", "command", "script|load"}

// calls reads one line of commandstats; of any other line it is zero.
func calls(key, value string) int64 {
	name, ok := strings.CutPrefix(key, "cmdstat_")
	if !ok {
		return 0
	}
	for _, prefix := range aside {
		if strings.HasPrefix(name, prefix) {
			return 0
		}
	}
	return int64(field(value, "calls="))
}

// field reads one number of a line of commandstats.
func field(line, name string) float64 {
	_, text, _ := strings.Cut(line, name)
	text, _, _ = strings.Cut(text, ",")
	return number(text)
}

// parts are commands that the time of Redis is shown for. Scripts include the
// commands that they call.
var parts = map[string][]string{
	"scripts": {"eval", "evalsha"},
	"zadd":    {"zadd"},
	"zrange":  {"zrange", "zrangebyscore"},
	"zrem":    {"zrem", "zremrangebyrank", "zremrangebyscore"},
	"zscore":  {"zscore", "zmscore", "zintercard"},
}

func partOf(command string) string {
	for part, commands := range parts {
		if slices.Contains(commands, command) {
			return part
		}
	}
	return "others"
}

func number(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64)
	return f
}

// Listen reads MONITOR, which marks what scripts call.
func (s *redisServer) Listen(ctx context.Context, d time.Duration) (Traffic, error) {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return Traffic{}, err
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil {
		return Traffic{}, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(d))
	m := monitor{last: make(map[string]float64)}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		m.take(lines.Text())
	}
	return m.Traffic, ctx.Err()
}

// monitor counts lines of MONITOR: +1700000000.123456 [0 127.0.0.1:4711] "ping".
type monitor struct {
	Traffic
	last map[string]float64 // by connection, in seconds
}

// pipelineGap is the longest pause within one pipeline. Somebody who waits at
// an empty queue leaves more between two.
const pipelineGap = 0.010

func (m *monitor) take(line string) {
	clock, rest, _ := strings.Cut(strings.TrimPrefix(line, "+"), " [")
	from, _, ok := strings.Cut(rest, "]")
	if !ok || strings.HasSuffix(from, " lua") {
		return
	}
	at := number(clock)
	m.Commands++
	if last, ok := m.last[from]; !ok || at-last > pipelineGap {
		m.Trips++
	}
	m.last[from] = at
}

// beanstalkdServer is a beanstalkd without a log.
type beanstalkdServer struct{ *listener }

func startBeanstalkd() (Server, error) {
	l, err := listen(func(port int) []string {
		return []string{"beanstalkd", "-l", "127.0.0.1", "-p", strconv.Itoa(port)}
	})
	if err != nil {
		return nil, err
	}
	return &beanstalkdServer{l}, nil
}

func (s *beanstalkdServer) Usage(context.Context) (Usage, error) {
	conn, err := beanstalk.Dial("tcp", s.addr)
	if err != nil {
		return Usage{}, err
	}
	defer conn.Close()
	stats, err := conn.Stats()
	if err != nil {
		return Usage{}, err
	}
	u := Usage{CPU: number(stats["rusage-utime"]) + number(stats["rusage-stime"])}
	for name, value := range stats {
		if strings.HasPrefix(name, "cmd-") && !strings.HasPrefix(name, "cmd-stats") {
			u.Commands += int64(number(value))
		}
	}
	u.Memory, err = residentBytes(s.process.cmd.Process.Pid)
	return u, err
}

// Listen counts commands; each is a round trip.
func (s *beanstalkdServer) Listen(ctx context.Context, d time.Duration) (Traffic, error) {
	before, err := s.Usage(ctx)
	if err != nil {
		return Traffic{}, err
	}
	sleepUntil(ctx, time.Now().Add(d))
	after, err := s.Usage(ctx)
	n := after.Commands - before.Commands
	return Traffic{n, n}, err
}

func residentBytes(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, errors.New("statm cannot be read")
	}
	return int64(number(fields[1])) * int64(os.Getpagesize()), nil
}

// fileServer is a directory: the store is a file and its clients do the work.
type fileServer struct{ dir string }

func startFile() (Server, error) {
	dir, err := os.MkdirTemp("", "dueq-bench-")
	return &fileServer{dir}, err
}

func (s *fileServer) Addr() string                         { return filepath.Join(s.dir, "dueq.db") }
func (s *fileServer) Stop()                                { _ = os.RemoveAll(s.dir) }
func (s *fileServer) Usage(context.Context) (Usage, error) { return Usage{}, nil }
func (s *fileServer) Listen(context.Context, time.Duration) (Traffic, error) {
	return Traffic{}, errors.New("a file gets no commands")
}
