package sqlitestore

import (
	"fmt"
	"strings"

	"github.com/dueq/dueq"
)

// applicationID marks a file as ours ("dueq"); schemaVersion grows with every
// change that an older dueq would not understand.
const (
	applicationID = 0x64756571
	schemaVersion = 1
)

// A task is one row, and an entry in an index for each place it is in. The
// counts in queue are those of the places, so that nobody has to count rows.
//
// Texts are compared byte by byte, whatever is in them.
const schema = `
CREATE TABLE queue (
	id        INTEGER PRIMARY KEY,
	name      TEXT NOT NULL UNIQUE,
	known     INTEGER NOT NULL, -- scheduled to, claimed from or set
	version   INTEGER NOT NULL, -- of the settings
	settings  TEXT NOT NULL,    -- JSON, those that differ from the defaults
	last_ms   INTEGER,          -- last claim
	grace_ms  INTEGER,          -- no lease is taken back before
	number    INTEGER NOT NULL, -- of the last delivery
	%s
) STRICT;
CREATE TABLE task (
	queue     INTEGER NOT NULL,
	member    TEXT NOT NULL,
	due_ms    REAL,    -- scheduled
	next_ms   REAL,    -- scheduled and due while a run is active
	lease     INTEGER, -- active: end in seconds × 1,000,000 + delivery number
	died_ms   REAL,    -- a dead letter
	failures  INTEGER NOT NULL,
	rounds    INTEGER NOT NULL,
	cancelled INTEGER NOT NULL,
	error     TEXT NOT NULL,
	body      BLOB,
	PRIMARY KEY (queue, member)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_due   ON task (queue, due_ms)  WHERE due_ms IS NOT NULL;
CREATE INDEX task_next  ON task (queue, next_ms) WHERE next_ms IS NOT NULL;
CREATE INDEX task_lease ON task (queue, lease)   WHERE lease IS NOT NULL;
CREATE INDEX task_died  ON task (queue, died_ms) WHERE died_ms IS NOT NULL;
PRAGMA application_id = %d;
PRAGMA user_version = %d;`

// placeColumns are the columns of the places, in their order.
var placeColumns = [...]string{"due_ms", "next_ms", "lease", "died_ms"}

// countColumns are the columns of queue with how many tasks are in a place.
var countColumns = []string{"scheduled", "next", "active", "dead"}

// totalColumns are the columns of queue with its totals, in the order of
// totalsOf.
var totalColumns = []string{"scheduled_total", "claimed_total", "acked_total", "retried_total", "again_total",
	"released_total", "died_total", "ended_total", "stopped_total", "superseded_total", "refused_total",
	"requeued_total", "cancelled_total", "deleted_total", "trimmed_total"}

func totalsOf(t *dueq.Totals) [15]*int64 {
	return [...]*int64{&t.Scheduled, &t.Claimed, &t.Acked, &t.Retried, &t.Again,
		&t.Released, &t.Died, &t.Ended, &t.Stopped, &t.Superseded, &t.Refused,
		&t.Requeued, &t.Cancelled, &t.Deleted, &t.Trimmed}
}

// numberColumns are the columns of queue that are numbers and never null.
var numberColumns = append(append([]string{}, countColumns...), totalColumns...)

func schemaText() string {
	columns := strings.Join(numberColumns, " INTEGER NOT NULL,\n\t") + " INTEGER NOT NULL"
	return fmt.Sprintf(schema, columns, applicationID, schemaVersion)
}

// migrate sees to it that the file holds our tables.
func (c *conn) migrate() error {
	ready, err := c.checkSchema()
	if err != nil || ready {
		return err
	}
	return c.transaction("BEGIN IMMEDIATE", func() error {
		ready, err := c.readSchema() // another process may have been first
		if err != nil || ready {
			return err
		}
		return c.exec(schemaText())
	})
}

// checkSchema reports whether the file holds our tables, or an error if it
// holds something else.
func (c *conn) checkSchema() (ready bool, err error) {
	err = c.transaction("BEGIN", func() error {
		ready, err = c.readSchema()
		return err
	})
	return ready, err
}

// readSchema is checkSchema in a transaction: another process may be making
// the tables.
func (c *conn) readSchema() (ready bool, err error) {
	id, err := c.number("PRAGMA application_id")
	if err != nil {
		return false, err
	}
	version, err := c.number("PRAGMA user_version")
	if err != nil {
		return false, err
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	switch {
	case err != nil:
		return false, err
	case id == 0 && version == 0 && tables == 0:
		return false, nil
	case id != applicationID:
		return false, errForeign
	case version > schemaVersion:
		return false, fmt.Errorf("it was written by a newer dueq: its schema is version %d, this dueq knows %d", version, schemaVersion)
	}
	return true, nil
}

// transaction runs do between begin and a commit, and leaves no trace of it
// after an error.
func (c *conn) transaction(begin string, do func() error) error {
	if err := c.exec(begin); err != nil {
		return err
	}
	defer c.rollback()
	if err := do(); err != nil {
		return err
	}
	return c.exec("COMMIT")
}

// rollback ends a transaction without a trace, if one is open still.
func (c *conn) rollback() {
	if c.inTransaction() {
		_ = c.command("ROLLBACK") // it fails only when the transaction ended meanwhile
	}
}
