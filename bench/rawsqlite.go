package main

import (
	"context"
	"database/sql"
	"strings"
	"time"

	_ "modernc.org/sqlite"
)

// rawSQLite is the most that a durable SQLite file can do for a queue: rows by
// member with an index by due time, calls that share a commit, and a claim that
// is nothing but reading, removing and adding to the active rows. It is no
// queue; it is what dueq on SQLite is measured against.
type rawSQLite struct {
	db    *sql.DB
	calls chan rawInsert
}

type rawInsert struct {
	tasks []*Task
	done  chan error
}

const rawShared = 16 // calls that share a commit, at most

const rawSchema = `
CREATE TABLE IF NOT EXISTS task (member TEXT PRIMARY KEY, due INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS due ON task (due, member);
CREATE TABLE IF NOT EXISTS active (member TEXT PRIMARY KEY, ends INTEGER NOT NULL) WITHOUT ROWID`

func openRawSQLite(path string) (System, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	s := &rawSQLite{db, make(chan rawInsert, rawShared)}
	go s.commit()
	_, err = db.Exec(rawSchema)
	return s, err
}

func (s *rawSQLite) Schedule(ctx context.Context, t *Task) error {
	return s.ScheduleAll(ctx, []*Task{t})
}

func (s *rawSQLite) ScheduleAll(_ context.Context, tasks []*Task) error {
	call := rawInsert{tasks, make(chan error, 1)}
	s.calls <- call
	return <-call.done
}

// commit inserts what all calls that wait bring, in one transaction.
func (s *rawSQLite) commit() {
	for call := range s.calls {
		calls := []rawInsert{call}
		for len(calls) < rawShared && len(s.calls) > 0 {
			calls = append(calls, <-s.calls)
		}
		err := s.insert(calls)
		for _, c := range calls {
			c.done <- err
		}
	}
}

func (s *rawSQLite) insert(calls []rawInsert) error {
	return s.transact(func(tx *sql.Tx) error {
		for _, call := range calls {
			args := make([]any, 0, 2*len(call.tasks))
			for _, t := range call.tasks {
				due := t.Due
				if t.After > 0 {
					due = time.Now().Add(t.After)
				}
				args = append(args, t.Member, due.UnixMilli())
			}
			if _, err := tx.Exec("INSERT INTO task (member, due) VALUES "+rawRows(len(call.tasks)), args...); err != nil {
				return err
			}
		}
		return nil
	})
}

func rawRows(n int) string { return strings.Repeat("(?, ?), ", n-1) + "(?, ?)" }

func (s *rawSQLite) transact(do func(*sql.Tx) error) error {
	tx, err := s.db.Begin()
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// Work claims only: nothing is acknowledged, whatever the slots.
func (s *rawSQLite) Work(ctx context.Context, _, _ int, handle func(string)) error {
	for ctx.Err() == nil {
		members, err := s.claim()
		if err != nil {
			return err
		}
		for _, member := range members {
			handle(member)
		}
		if len(members) == 0 {
			sleepUntil(ctx, time.Now().Add(rawRest))
		}
	}
	return nil
}

func (s *rawSQLite) claim() (members []string, err error) {
	now := time.Now().UnixMilli()
	err = s.transact(func(tx *sql.Tx) error {
		rows, err := tx.Query("DELETE FROM task WHERE member IN (SELECT member FROM task WHERE due <= ? ORDER BY due, member LIMIT ?) RETURNING member", now, rawBatch)
		if err != nil {
			return err
		}
		var leases []any
		for rows.Next() {
			var member string
			if err := rows.Scan(&member); err != nil {
				return err
			}
			members, leases = append(members, member), append(leases, member, now+30_000)
		}
		if err := rows.Err(); err != nil || len(members) == 0 {
			return err
		}
		_, err = tx.Exec("INSERT INTO active (member, ends) VALUES "+rawRows(len(members)), leases...)
		return err
	})
	return members, err
}

func (s *rawSQLite) Left(ctx context.Context) (left int64, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT count(*) FROM task").Scan(&left)
	return left, err
}

func (s *rawSQLite) Close() error { return s.db.Close() }
