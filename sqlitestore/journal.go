package sqlitestore

import (
	"sync"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite writes each page of a commit to the journal with two system calls, a
// hundred pages or more where the due times are spread. A layer over its own
// file system makes a few of them: it keeps what is written to a journal until
// that must be seen, at the latest when it is synced. With synchronous FULL
// that is before SQLite tells anybody of the commit, other processes included.

// journalLayer is the name of the layer at SQLite.
const journalLayer = "dueq"

// journalBuffer is how much is kept of a journal, in bytes. SQLite's own layer
// writes up to 128 KiB - 1 at once.
const journalBuffer = 124 << 10

// own is SQLite's own layer, and ownSize the room that a file of it takes.
var own, ownSize uintptr

// registerJournalLayer makes the layer known to SQLite.
var registerJournalLayer = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	own = sqlite3.Xsqlite3_vfs_find(tls, 0)
	var layer sqlite3.Tsqlite3_vfs
	name := libc.Xcalloc(tls, 1, types.Size_t(len(journalLayer)+1))
	address := libc.Xcalloc(tls, 1, types.Size_t(unsafe.Sizeof(layer)))
	if own == 0 || name == 0 || address == 0 {
		panic("sqlitestore: SQLite has no file system, or there is no memory")
	}
	copy(unsafe.Slice((*byte)(pointer(name)), len(journalLayer)), journalLayer)
	layer = *vfs(own)
	ownSize = (uintptr(layer.FszOsFile) + 7) &^ 7
	layer.FszOsFile = int32(ownSize + unsafe.Sizeof(journal{}))
	layer.FpNext, layer.FzName, layer.FxOpen = 0, name, callable(openJournal)
	*vfs(address) = layer
	sqlite3.Xsqlite3_vfs_register(tls, address, 0)
})

func vfs(address uintptr) *sqlite3.Tsqlite3_vfs { return (*sqlite3.Tsqlite3_vfs)(pointer(address)) }

// callable is what C code calls a function of this package by.
func callable[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&struct{ f F }{f})) }

// function is the function that C code calls by an address.
func function[F any](address uintptr) F {
	return *(*F)(unsafe.Pointer(&struct{ address uintptr }{address}))
}

// journal lies behind a file of SQLite's own layer, in C memory.
type journal struct {
	methods sqlite3.Tsqlite3_io_methods // what SQLite calls
	own     sqlite3.Tsqlite3_io_methods // what those call
	buffer  uintptr                     // journalBuffer bytes; made at the first write
	used    int64
	offset  int64 // in the file, of what is in buffer
}

func journalOf(file uintptr) *journal { return (*journal)(pointer(file + ownSize)) }

// openJournal opens any file, and puts the layer over those that are journals.
func openJournal(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	open := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](vfs(own).FxOpen)
	code := open(tls, own, name, file, flags, outFlags)
	if code != sqlite3.SQLITE_OK || flags&sqlite3.SQLITE_OPEN_WAL == 0 {
		return code
	}
	methods := &(*sqlite3.Tsqlite3_file)(pointer(file)).FpMethods
	j := journalOf(file)
	*j = journal{own: *(*sqlite3.Tsqlite3_io_methods)(pointer(*methods))}
	j.methods = j.own
	j.methods.FxClose = callable(closeJournal)
	j.methods.FxRead = callable(readJournal)
	j.methods.FxWrite = callable(writeJournal)
	j.methods.FxTruncate = callable(truncateJournal)
	j.methods.FxSync = callable(syncJournal)
	j.methods.FxFileSize = callable(sizeOfJournal)
	*methods = file + ownSize // the first field
	return code
}

// transfer is the type of read and write.
type transfer = func(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32

// flush writes what is kept. After an error it is forgotten: SQLite gives up
// the transaction that it is of.
func (j *journal) flush(tls *libc.TLS, file uintptr) int32 {
	if j.used == 0 {
		return sqlite3.SQLITE_OK
	}
	n := int32(j.used)
	j.used = 0
	return function[transfer](j.own.FxWrite)(tls, file, j.buffer, n, j.offset)
}

func writeJournal(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	j := journalOf(file)
	if offset != j.offset+j.used || j.used+int64(n) > journalBuffer {
		if code := j.flush(tls, file); code != sqlite3.SQLITE_OK {
			return code
		}
		j.offset = offset
	}
	if !j.room(tls, n) {
		return function[transfer](j.own.FxWrite)(tls, file, data, n, offset)
	}
	copy(unsafe.Slice((*byte)(pointer(j.buffer+uintptr(j.used))), n), unsafe.Slice((*byte)(pointer(data)), n))
	j.used += int64(n)
	return sqlite3.SQLITE_OK
}

// room reports whether the buffer takes n bytes more.
func (j *journal) room(tls *libc.TLS, n int32) bool {
	if j.buffer == 0 {
		j.buffer = libc.Xmalloc(tls, journalBuffer)
	}
	return j.buffer != 0 && j.used+int64(n) <= journalBuffer
}

func readJournal(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	j := journalOf(file)
	if code := j.flush(tls, file); code != sqlite3.SQLITE_OK {
		return code
	}
	return function[transfer](j.own.FxRead)(tls, file, data, n, offset)
}

func truncateJournal(tls *libc.TLS, file uintptr, size int64) int32 {
	j := journalOf(file)
	if code := j.flush(tls, file); code != sqlite3.SQLITE_OK {
		return code
	}
	return function[func(*libc.TLS, uintptr, int64) int32](j.own.FxTruncate)(tls, file, size)
}

func syncJournal(tls *libc.TLS, file uintptr, flags int32) int32 {
	j := journalOf(file)
	if code := j.flush(tls, file); code != sqlite3.SQLITE_OK {
		return code
	}
	return function[func(*libc.TLS, uintptr, int32) int32](j.own.FxSync)(tls, file, flags)
}

func sizeOfJournal(tls *libc.TLS, file, size uintptr) int32 {
	j := journalOf(file)
	if code := j.flush(tls, file); code != sqlite3.SQLITE_OK {
		return code
	}
	return function[func(*libc.TLS, uintptr, uintptr) int32](j.own.FxFileSize)(tls, file, size)
}

func closeJournal(tls *libc.TLS, file uintptr) int32 {
	j := journalOf(file)
	flushed := j.flush(tls, file)
	if j.buffer != 0 {
		libc.Xfree(tls, j.buffer)
	}
	code := function[func(*libc.TLS, uintptr) int32](j.own.FxClose)(tls, file)
	if code == sqlite3.SQLITE_OK {
		code = flushed
	}
	return code
}
