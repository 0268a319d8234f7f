package sqlitestore

import (
	"fmt"
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

// conn is one connection to a database file, straight on SQLite's C interface:
// the way through database/sql costs as much again per statement as the
// statement itself. It is for one goroutine at a time, but for interrupt.
type conn struct {
	path  string
	tls   *libc.TLS
	db    uintptr
	stmts map[string]*stmt
	mem   arena // what is bound to the statement under way
}

// codeError is what SQLite said.
type codeError struct {
	code int32 // extended
	text string
}

func (e *codeError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }

func (e *codeError) primary() int32 { return e.code & 0xff }

var patch = sync.OnceFunc(sqlite3.PatchIssue199)

// openConn opens a file that exists, for reading and writing where its mode
// allows it.
func openConn(path string) (*conn, error) {
	patch()
	registerJournalLayer()
	c := &conn{path: path, tls: libc.NewTLS(), stmts: map[string]*stmt{}}
	name, handle := c.text(path), c.alloc(int(unsafe.Sizeof(uintptr(0))))
	defer c.mem.reset(c.tls)
	const flags = sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_NOMUTEX | sqlite3.SQLITE_OPEN_EXRESCODE
	code := sqlite3.Xsqlite3_open_v2(c.tls, name, handle, flags, c.text(journalLayer))
	c.db = *(*uintptr)(pointer(handle))
	if code != sqlite3.SQLITE_OK {
		err := c.error(code)
		c.close()
		return nil, err
	}
	return c, nil
}

// close releases the connection. The last one of a file, of all processes,
// writes the journal back and removes it.
func (c *conn) close() {
	for _, s := range c.stmts {
		sqlite3.Xsqlite3_finalize(c.tls, s.handle)
	}
	sqlite3.Xsqlite3_close_v2(c.tls, c.db)
	c.mem.free(c.tls)
	c.tls.Close()
}

// interrupt makes the statement under way fail. It may be called from any
// goroutine while the connection is open.
func (c *conn) interrupt() { sqlite3.Xsqlite3_interrupt(c.tls, c.db) }

// inTransaction reports whether a transaction is open: some errors end it.
func (c *conn) inTransaction() bool { return sqlite3.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// error says what a code means; the text is only that of the last call.
func (c *conn) error(code int32) error {
	return &codeError{code, libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))}
}

// exec runs statements that have no parameters and whose rows nobody wants.
func (c *conn) exec(sql string) error {
	defer c.mem.reset(c.tls)
	if code := sqlite3.Xsqlite3_exec(c.tls, c.db, c.text(sql), 0, 0, 0); code != sqlite3.SQLITE_OK {
		return c.error(code)
	}
	return nil
}

// command is exec for one statement that is run again and again.
func (c *conn) command(sql string) error {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	return s.run()
}

// number runs a statement that answers with one number.
func (c *conn) number(sql string) (int64, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return 0, err
	}
	defer s.reset()
	if _, err := s.step(); err != nil {
		return 0, err
	}
	return s.int(0), nil
}

// stmt is a prepared statement. Parameters count from 1, columns from 0.
type stmt struct {
	c      *conn
	handle uintptr
}

// prepare returns the statement of that text, which the connection keeps.
func (c *conn) prepare(sql string) (*stmt, error) {
	if s := c.stmts[sql]; s != nil {
		return s, nil
	}
	defer c.mem.reset(c.tls)
	handle := c.alloc(int(unsafe.Sizeof(uintptr(0))))
	code := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, c.text(sql), -1, sqlite3.SQLITE_PREPARE_PERSISTENT, handle, 0)
	if code != sqlite3.SQLITE_OK {
		return nil, c.error(code)
	}
	s := &stmt{c, *(*uintptr)(pointer(handle))}
	c.stmts[sql] = s
	return s, nil
}

// step runs the statement to its next row; false is the end.
func (s *stmt) step() (bool, error) {
	switch code := sqlite3.Xsqlite3_step(s.c.tls, s.handle); code {
	case sqlite3.SQLITE_ROW:
		return true, nil
	case sqlite3.SQLITE_DONE:
		return false, nil
	default:
		return false, s.c.error(code)
	}
}

// run runs a statement without rows and makes it ready for the next time.
func (s *stmt) run() error {
	_, err := s.step()
	s.reset()
	return err
}

// reset ends the run of a statement. Parameters stay but for texts and blobs,
// which must be bound again.
func (s *stmt) reset() {
	sqlite3.Xsqlite3_reset(s.c.tls, s.handle)
	s.c.mem.reset(s.c.tls)
}

func (s *stmt) bindInt(i int, v int64) {
	sqlite3.Xsqlite3_bind_int64(s.c.tls, s.handle, int32(i), v)
}

func (s *stmt) bindFloat(i int, v float64) {
	sqlite3.Xsqlite3_bind_double(s.c.tls, s.handle, int32(i), v)
}

func (s *stmt) bindNull(i int) { sqlite3.Xsqlite3_bind_null(s.c.tls, s.handle, int32(i)) }

func (s *stmt) bindText(i int, v string) {
	sqlite3.Xsqlite3_bind_text(s.c.tls, s.handle, int32(i), s.c.text(v), int32(len(v)), 0)
}

func (s *stmt) bindBlob(i int, v []byte) {
	p := s.c.alloc(len(v) + 1) // never null, which would be NULL
	copy(unsafe.Slice((*byte)(pointer(p)), len(v)), v)
	sqlite3.Xsqlite3_bind_blob(s.c.tls, s.handle, int32(i), p, int32(len(v)), 0)
}

func (s *stmt) isNull(i int) bool {
	return sqlite3.Xsqlite3_column_type(s.c.tls, s.handle, int32(i)) == sqlite3.SQLITE_NULL
}

func (s *stmt) int(i int) int64 { return sqlite3.Xsqlite3_column_int64(s.c.tls, s.handle, int32(i)) }

func (s *stmt) float(i int) float64 {
	return sqlite3.Xsqlite3_column_double(s.c.tls, s.handle, int32(i))
}

func (s *stmt) text(i int) string { return string(s.bytes(i)) }

// blob returns a copy of a blob, which is not nil.
func (s *stmt) blob(i int) []byte { return append([]byte{}, s.bytes(i)...) }

// bytes is valid until the next step or reset.
func (s *stmt) bytes(i int) []byte {
	p := sqlite3.Xsqlite3_column_blob(s.c.tls, s.handle, int32(i))
	n := sqlite3.Xsqlite3_column_bytes(s.c.tls, s.handle, int32(i))
	if p == 0 || n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(pointer(p)), n)
}

// text puts a text with its ending zero into C memory.
func (c *conn) text(v string) uintptr {
	p := c.alloc(len(v) + 1)
	b := unsafe.Slice((*byte)(pointer(p)), len(v)+1)
	copy(b, v)
	b[len(v)] = 0
	return p
}

func (c *conn) alloc(n int) uintptr { return c.mem.alloc(c.tls, n) }

// pointer makes a pointer of an address in C memory, which never moves.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// arena is C memory for what lives as long as one run of a statement.
type arena struct {
	blocks []block
	used   int // of the last block
}

type block struct {
	address uintptr
	size    int
}

const blockSize = 64 << 10

func (a *arena) alloc(tls *libc.TLS, n int) uintptr {
	n = (n + 7) &^ 7
	if len(a.blocks) == 0 || a.used+n > a.blocks[len(a.blocks)-1].size {
		size := max(n, blockSize)
		address := libc.Xmalloc(tls, types.Size_t(size))
		if address == 0 {
			panic("sqlitestore: out of memory")
		}
		a.blocks, a.used = append(a.blocks, block{address, size}), 0
	}
	p := a.blocks[len(a.blocks)-1].address + uintptr(a.used)
	a.used += n
	return p
}

// reset forgets what was allocated, and keeps one block of the usual
// size.
func (a *arena) reset(tls *libc.TLS) {
	for n := len(a.blocks); n > 1 || n == 1 && a.blocks[0].size > blockSize; n-- {
		libc.Xfree(tls, a.blocks[n-1].address)
		a.blocks = a.blocks[:n-1]
	}
	a.used = 0
}

func (a *arena) free(tls *libc.TLS) {
	for _, b := range a.blocks {
		libc.Xfree(tls, b.address)
	}
	a.blocks = nil
}
