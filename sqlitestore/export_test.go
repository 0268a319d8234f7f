package sqlitestore

import (
	"context"

	"github.com/dueq/dueq/internal/rules"
)

// Path is that of the file.
func (s *Store) Path() string { return s.path }

// Add does what a plain ZADD does on Redis.
func (s *Store) Add(queue, member string, score float64) error {
	return s.write(context.Background(), func(u *unit) error {
		u.queue(queue).Queue.Add(member, score)
		return nil
	})
}

// Remove does what a plain ZREM does on Redis.
func (s *Store) Remove(queue, member string) error {
	return s.write(context.Background(), func(u *unit) error {
		u.queue(queue).Queue.Remove(member)
		return nil
	})
}

// Contents returns all that lies in a queue, and checks what must hold in the
// file.
func (s *Store) Contents(queue string) (c rules.Contents, err error) {
	err = s.read(context.Background(), func(u *unit) error {
		c = rules.NewContents()
		q := u.queue(queue)
		st := u.stmt("SELECT " + taskColumns + " FROM task WHERE queue = ?1")
		if st == nil {
			return u.err
		}
		st.bindInt(1, q.id)
		var rows []*row
		for u.step(st) {
			r := &row{Entry: rules.Entry{Member: st.text(0)}}
			r.read(st)
			rows = append(rows, r)
		}
		for _, r := range rows {
			if r.HasBody && r.Body == nil {
				r.Body = q.Body(&r.Entry)
			}
			c.Add(&r.Entry)
		}
		return u.err
	})
	return c, err
}

// Recount counts the rows of a queue in each place, and what the queue says.
func (s *Store) Recount(queue string) (counted, noted [rules.Places]int64, err error) {
	err = s.read(context.Background(), func(u *unit) error {
		q := u.queue(queue)
		noted = q.counts
		for p, column := range placeColumns {
			st := u.stmt("SELECT count(*) FROM task WHERE queue = ?1 AND " + column + " IS NOT NULL")
			if st == nil {
				return u.err
			}
			st.bindInt(1, q.id)
			if u.step(st) {
				counted[p] = st.int(0)
				st.reset()
			}
		}
		return u.err
	})
	return counted, noted, err
}

// Exec runs SQL on the connection that writes.
func (s *Store) Exec(sql string) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.writer.exec(sql)
}

// Integrity asks SQLite whether the file is sound.
func (s *Store) Integrity() (answer string, err error) {
	err = s.read(context.Background(), func(u *unit) error {
		st := u.stmt("PRAGMA integrity_check")
		for u.step(st) {
			answer += st.text(0) + "\n"
		}
		return nil
	})
	return answer, err
}

// Plan explains how SQLite reads a place.
func (s *Store) Plan(p rules.Place) (plans []string, err error) {
	err = s.read(context.Background(), func(u *unit) error {
		for _, sql := range []string{ascendFirst[p], ascendAfter[p], descend[p], countUpTo[p]} {
			st := u.stmt("EXPLAIN QUERY PLAN " + sql)
			text := ""
			for u.step(st) {
				text += st.text(3) + "\n"
			}
			plans = append(plans, text)
		}
		return nil
	})
	return plans, err
}
