package httpapi

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const requestIDHeader = "X-Request-Id"

// requestInfo is what the log says about one request. The request's own
// goroutine writes it.
type requestInfo struct {
	id    string
	token string // name of the token, empty without
	cause error  // why it failed
	stack string // of a panic
	meant bool   // a status of failures is the right answer, as of a server that is not ready
	away  bool   // it failed for want of the store, as others will
}

type requestInfoKey struct{}

// infoOf returns the request's info, or one that nobody reads.
func infoOf(ctx context.Context) *requestInfo {
	if info, ok := ctx.Value(requestInfoKey{}).(*requestInfo); ok {
		return info
	}
	return &requestInfo{}
}

// requestID returns the id of the request that ctx belongs to, or an empty text.
func requestID(ctx context.Context) string { return infoOf(ctx).id }

// in returns p as an answer to the request of ctx, and notes for the log why it
// failed.
func (p *Problem) in(ctx context.Context) *Problem {
	info := infoOf(ctx)
	if p.Status >= 500 {
		info.cause, info.meant, info.away = p.cause, p.cause == nil, p.Retryable
	}
	answer := *p
	answer.RequestID = info.id
	return &answer
}

// record gives every request an id, logs one line about it and answers when a
// handler panics. The line is Debug, or Error for a failure of the server that
// somebody waits for, unless it is a Problem without a cause. While the store is
// away every request fails, so of those one in ten seconds is a Warn. The line
// has the route's pattern, never path, query, body or secret. So next must pass
// the request on as it is: the router leaves the pattern there.
func record(log *slog.Logger, next http.Handler) http.Handler {
	outages := &seldom{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, outer := &requestInfo{id: idFrom(r)}, r
		r = r.WithContext(context.WithValue(r.Context(), requestInfoKey{}, info))
		w.Header().Set(requestIDHeader, info.id)
		answer := &statusWriter{ResponseWriter: w}
		begin := time.Now()
		defer func() {
			abort := answerPanic(recover(), answer, r)
			if answer.status == 0 && !abort {
				answer.status = http.StatusOK // what the server sends for a handler that wrote nothing
			}
			logRequest(log, outages, r, answer.status, time.Since(begin))
			outer.Pattern = r.Pattern // for those around it who count by route
			if abort {
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(answer, r)
	})
}

// idFrom takes the client's id if it is harmless in headers and logs.
func idFrom(r *http.Request) string {
	ids := r.Header.Values(requestIDHeader)
	if len(ids) == 1 && validName.MatchString(ids[0]) {
		return ids[0]
	}
	return rand.Text()
}

// answerPanic answers a request whose handler panicked with p, and reports that
// the connection must be cut instead, since the answer has begun. A nil p is no
// panic.
func answerPanic(p any, w *statusWriter, r *http.Request) (abort bool) {
	if p == nil || p == http.ErrAbortHandler {
		return p != nil
	}
	info := infoOf(r.Context())
	info.stack = string(debug.Stack())
	cause := fmt.Errorf("panic: %v", p)
	if w.status != 0 {
		info.cause = cause
		return true
	}
	problem := problemOf(cause)
	problem.MayHaveHappened = !isSafe(r.Method)
	writeProblem(w, r, problem)
	return false
}

// isSafe reports that requests of the method change nothing.
func isSafe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// seldom is true once in ten seconds.
type seldom struct{ last atomic.Int64 } // Unix ns

func (s *seldom) now() bool {
	last, now := s.last.Load(), time.Now().UnixNano()
	return now-last > int64(10*time.Second) && s.last.CompareAndSwap(last, now)
}

func levelOf(info *requestInfo, outages *seldom, r *http.Request, status int) slog.Level {
	switch {
	case info.stack != "":
		return slog.LevelError
	case status < 500 || info.meant || r.Context().Err() != nil:
		return slog.LevelDebug
	case !info.away:
		return slog.LevelError
	case outages.now():
		return slog.LevelWarn
	}
	return slog.LevelDebug
}

func logRequest(log *slog.Logger, outages *seldom, r *http.Request, status int, took time.Duration) {
	info := infoOf(r.Context())
	level := levelOf(info, outages, r, status)
	if !log.Enabled(r.Context(), level) {
		return
	}
	remote, _, _ := net.SplitHostPort(r.RemoteAddr)
	attrs := []slog.Attr{
		slog.String("request_id", info.id), slog.String("method", r.Method), slog.String("route", r.Pattern),
		slog.Int("status", status), slog.Duration("took", took), slog.String("token", info.token), slog.String("remote", remote),
	}
	if info.cause != nil {
		attrs = append(attrs, slog.Any("err", info.cause))
	}
	if info.stack != "" {
		attrs = append(attrs, slog.String("stack", info.stack))
	}
	log.LogAttrs(r.Context(), level, "request", attrs...)
}

// statusWriter remembers the status of the answer, zero before there is one.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 && status >= 200 { // 1xx comes before the answer
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController flush and set deadlines.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
