package sqlitestore

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/rules"
)

// unit is what one transaction looked at and changed. Its first error makes
// all that follows do nothing; whoever runs the transaction asks for it and
// rolls back.
type unit struct {
	*session
	touched []*queue
	byName  map[string]*queue
	err     error
}

func newUnit(s *session) *unit { return &unit{session: s, byName: map[string]*queue{}} }

// session is a connection with what it knows of settings, and of queues.
type session struct {
	*conn
	settings map[string]dueq.Settings // by their JSON
	queues   map[string]*queue        // as the file has them; nil for who only reads
	version  int64                    // data_version of queues: it changes when others write
	kept     int                      // rows in queues
}

// queue is the rules over the rows of one queue.
type queue struct {
	*rules.Queue
	storage
}

// storage is a rules.Storage over one transaction. Changes are kept in memory
// until somebody reads a place that they touched, or the end.
type storage struct {
	u       *unit
	queue   *queue
	id      int64  // of the row in the file; 0 if there is none
	fields  string // settings in the row, JSON
	was     rules.Meta
	counts  [rules.Places]int64
	counted [rules.Places]int64 // as the row in the file says
	kept    map[string]*row     // those active that the file has just so
	rows    map[string]*row     // those looked at, also members without one
	loaded  []*row              // the same, in the order they were looked at
	touched [rules.Places]bool  // since rows were written
}

// row is a row of task, as it is here and as it is in the file.
type row struct {
	rules.Entry
	exists bool
	stored bool
	saved  rules.Entry // where stored, but for its body
}

var _ rules.Storage = (*storage)(nil)

func (u *unit) fail(err error) {
	if u.err == nil {
		u.err = err
	}
}

// stmt returns a prepared statement, or nil after an error.
func (u *unit) stmt(sql string) *stmt {
	if u.err != nil {
		return nil
	}
	s, err := u.prepare(sql)
	if err != nil {
		u.fail(err)
		return nil
	}
	return s
}

// step steps a statement that may be nil. Without a row it is reset.
func (u *unit) step(s *stmt) bool {
	if s == nil || u.err != nil {
		return false
	}
	more, err := s.step()
	if err != nil {
		u.fail(err)
	}
	if !more {
		s.reset()
	}
	return more
}

// queue returns the queue of that name, new if there is none.
func (u *unit) queue(name string) *queue {
	if q := u.byName[name]; q != nil {
		return q
	}
	q := u.session.queues[name]
	if q == nil {
		q = &queue{storage: storage{u: u, kept: map[string]*row{}, rows: map[string]*row{}}}
		q.storage.queue, q.Queue = q, rules.New(name, &q.storage)
		q.load()
	}
	q.u = u
	u.touched = append(u.touched, q)
	u.byName[name] = q
	return q
}

// maxKept is how many rows a session keeps, and maxKeptQueues how many queues.
const maxKept, maxKeptQueues = 4096, 64

// validate forgets queues that others wrote since. It runs in a transaction.
func (ses *session) validate() error {
	version, err := ses.number("PRAGMA data_version")
	if err != nil || version != ses.version || ses.kept > maxKept || len(ses.queues) > maxKeptQueues {
		ses.forget()
	}
	ses.version = version
	return err
}

func (ses *session) forget() { ses.queues, ses.kept = map[string]*queue{}, 0 }

// keep keeps what the next transactions will ask for: the tasks that are
// active, and the queues themselves. It follows a commit.
func (u *unit) keep() {
	for _, q := range u.touched {
		u.kept -= len(q.kept)
		for _, r := range q.loaded {
			if r.exists && r.In[rules.Active] && r.BodySize <= smallBody {
				q.kept[r.Member] = r
			} else {
				delete(q.kept, r.Member)
			}
		}
		clear(q.rows)
		q.loaded = q.loaded[:0]
		u.kept += len(q.kept)
		u.session.queues[q.Name] = q
	}
}

var selectQueue = "SELECT id, known, version, settings, last_ms, grace_ms, number, " +
	strings.Join(numberColumns, ", ") + " FROM queue WHERE name = ?1"

func (q *queue) load() {
	s := q.u.stmt(selectQueue)
	if s == nil {
		return
	}
	s.bindText(1, q.Name)
	if q.u.step(s) {
		q.read(s)
		s.reset()
	}
	q.was = q.Meta
}

func (q *queue) read(s *stmt) {
	q.id, q.Known, q.fields = s.int(0), s.int(1) != 0, s.text(3)
	q.Settings = q.u.decode(q.fields)
	q.Settings.Version = s.int(2)
	if !s.isNull(4) {
		q.LastClaim = s.int(4)
	}
	if !s.isNull(5) {
		q.Grace = s.int(5)
	}
	q.Delivery = s.int(6)
	for i := range q.counts {
		q.counts[i] = s.int(7 + i)
	}
	q.counted = q.counts
	for i, total := range totalsOf(&q.Totals) {
		*total = s.int(7 + len(q.counts) + i)
	}
}

// decode reads settings. Fields that nobody understands take their defaults.
func (ses *session) decode(text string) dueq.Settings {
	if settings, ok := ses.settings[text]; ok {
		return settings
	}
	fields := map[string]string{}
	_ = json.Unmarshal([]byte(text), &fields)
	settings, _ := dueq.DecodeSettings(fields)
	if len(ses.settings) > 1000 {
		clear(ses.settings)
	}
	ses.settings[text] = settings
	return settings
}

// set changes settings, here and in what will be the row.
func (q *queue) set(patch dueq.SettingsPatch) (dueq.Settings, error) {
	settings, err := q.Set(patch)
	if err != nil {
		return settings, err
	}
	fields := map[string]string{}
	if q.fields != "" {
		_ = json.Unmarshal([]byte(q.fields), &fields)
	}
	for name, value := range settings.Encode(patch) {
		fields[name] = value
		if value == "" {
			delete(fields, name)
		}
	}
	text, err := json.Marshal(fields)
	q.fields = string(text)
	return settings, err
}

// flush writes all that changed.
func (u *unit) flush() error {
	for _, q := range u.touched {
		q.flushRows()
		q.flushMeta()
	}
	return u.err
}

var (
	insertQueue = "INSERT INTO queue (name, known, version, settings, last_ms, grace_ms, number, " + strings.Join(numberColumns, ", ") +
		") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7" + parameters(8, len(numberColumns)) + ")"
	updateQueue = "UPDATE queue SET name = ?1, known = ?2, version = ?3, settings = ?4, last_ms = ?5, grace_ms = ?6, number = ?7" +
		assignments(8, numberColumns) + " WHERE name = ?1"
)

func parameters(from, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(", ?" + strconv.Itoa(from+i))
	}
	return b.String()
}

func assignments(from int, columns []string) string {
	var b strings.Builder
	for i, name := range columns {
		b.WriteString(", " + name + " = ?" + strconv.Itoa(from+i))
	}
	return b.String()
}

func (q *queue) flushMeta() {
	if q.Meta == q.was && q.counts == q.counted {
		return
	}
	q.insertQueue()
	s := q.u.stmt(updateQueue)
	if s == nil {
		return
	}
	q.bindQueue(s)
	if err := s.run(); err != nil {
		q.u.fail(err)
	}
	q.was, q.counted = q.Meta, q.counts
}

// insertQueue gives the queue a row, and so its id.
func (q *queue) insertQueue() {
	if q.id != 0 {
		return
	}
	s := q.u.stmt(insertQueue)
	if s == nil {
		return
	}
	q.bindQueue(s)
	if err := s.run(); err != nil {
		q.u.fail(err)
		return
	}
	id, err := q.u.number("SELECT last_insert_rowid()")
	if err != nil {
		q.u.fail(err)
	}
	q.id = id
}

func (q *queue) bindQueue(s *stmt) {
	if q.fields == "" {
		q.fields = "{}"
	}
	s.bindText(1, q.Name)
	s.bindInt(2, flag(q.Known))
	s.bindInt(3, q.Settings.Version)
	s.bindText(4, q.fields)
	for i, ms := range [...]int64{q.LastClaim, q.Grace} {
		if ms == rules.Never {
			s.bindNull(5 + i)
		} else {
			s.bindInt(5+i, ms)
		}
	}
	s.bindInt(7, q.Delivery)
	for i, n := range q.counts {
		s.bindInt(8+i, n)
	}
	for i, total := range totalsOf(&q.Totals) {
		s.bindInt(8+len(q.counts)+i, *total)
	}
}

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}

// smallBody is the size up to which bodies are read with their tasks; larger
// ones only when they are asked for.
const smallBody = 1024

var (
	taskColumns = fmt.Sprintf(`member, due_ms, next_ms, lease, died_ms, failures, rounds, cancelled, error,
		length(body), CASE WHEN length(body) <= %d THEN body END`, smallBody)
	selectTask = "SELECT " + taskColumns + " FROM task WHERE queue = ?1 AND member = ?2"
	selectBody = "SELECT body FROM task WHERE queue = ?1 AND member = ?2"
)

// Find implements rules.Storage.
func (st *storage) Find(member string) *rules.Entry {
	r := st.row(member)
	if r == nil {
		r = st.fetch(member)
	}
	if !r.exists {
		return nil
	}
	return &r.Entry
}

// row returns what is known of a member, or nil.
func (st *storage) row(member string) *row {
	r := st.rows[member]
	if r == nil {
		if r = st.kept[member]; r != nil {
			st.add(r)
		}
	}
	return r
}

func (st *storage) fetch(member string) *row {
	r := st.add(&row{Entry: rules.Entry{Member: member}})
	if st.id == 0 {
		return r
	}
	s := st.u.stmt(selectTask)
	if s == nil {
		return r
	}
	s.bindInt(1, st.id)
	s.bindText(2, member)
	if st.u.step(s) {
		r.read(s)
		s.reset()
	}
	return r
}

func (st *storage) add(r *row) *row {
	st.rows[r.Member] = r
	st.loaded = append(st.loaded, r)
	return r
}

// read takes a row of taskColumns but for its member.
func (r *row) read(s *stmt) {
	r.exists, r.stored = true, true
	for p := range placeColumns {
		if s.isNull(1 + p) {
			continue
		}
		r.In[p], r.Score[p] = true, s.float(1+p)
	}
	if r.In[rules.Active] {
		r.Lease = s.int(1 + int(rules.Active))
	}
	r.Failures, r.Rounds, r.Cancelled, r.LastErr = int(s.int(5)), int(s.int(6)), s.int(7) != 0, s.text(8)
	if r.HasBody = !s.isNull(9); r.HasBody {
		r.BodySize = int(s.int(9))
		if !s.isNull(10) {
			r.Body = s.blob(10)
		}
	}
	r.saved = r.Entry
}

// New implements rules.Storage.
func (st *storage) New(member string) *rules.Entry {
	r := st.row(member)
	if r == nil {
		r = st.add(&row{})
	}
	r.Entry, r.exists = rules.Entry{Member: member, NewBody: r.stored}, true
	return &r.Entry
}

// Drop implements rules.Storage.
func (st *storage) Drop(e *rules.Entry) { st.rows[e.Member].exists = false }

// Body implements rules.Storage.
func (st *storage) Body(e *rules.Entry) []byte {
	s := st.u.stmt(selectBody)
	if s == nil {
		return nil
	}
	s.bindInt(1, st.id)
	s.bindText(2, e.Member)
	if !st.u.step(s) {
		return nil
	}
	defer s.reset()
	return s.blob(0)
}

// Put implements rules.Storage.
func (st *storage) Put(p rules.Place, _ *rules.Entry) {
	st.counts[p]++
	st.touched[p] = true
}

// Remove implements rules.Storage.
func (st *storage) Remove(p rules.Place, _ *rules.Entry) {
	st.counts[p]--
	st.touched[p] = true
}

// Len implements rules.Storage.
func (st *storage) Len(p rules.Place) int { return int(st.counts[p]) }

// The statements that read a place, by place.
var ascendFirst, ascendAfter, descend, countUpTo [rules.Places]string

func init() {
	for p, column := range placeColumns {
		from := "SELECT " + taskColumns + " FROM task WHERE queue = ?1 AND " + column + " IS NOT NULL"
		ascendFirst[p] = from + " ORDER BY " + column + ", member"
		ascendAfter[p] = from + " AND (" + column + ", member) > (?2, ?3) ORDER BY " + column + ", member"
		descend[p] = from + " ORDER BY " + column + " DESC, member DESC"
		countUpTo[p] = "SELECT count(*) FROM task WHERE queue = ?1 AND " + column + " <= ?2"
	}
}

// Min implements rules.Storage.
func (st *storage) Min(p rules.Place) (first *rules.Entry) {
	if st.counts[p] == 0 {
		return nil
	}
	st.Ascend(p, nil, func(e *rules.Entry) bool {
		first = e
		return false
	})
	return first
}

// Ascend implements rules.Storage.
func (st *storage) Ascend(p rules.Place, after *rules.Position, yield func(*rules.Entry) bool) {
	if after == nil {
		st.scan(p, ascendFirst[p], nil, yield)
		return
	}
	st.scan(p, ascendAfter[p], after, yield)
}

// Descend implements rules.Storage.
func (st *storage) Descend(p rules.Place, yield func(*rules.Entry) bool) {
	st.scan(p, descend[p], nil, yield)
}

func (st *storage) scan(p rules.Place, sql string, after *rules.Position, yield func(*rules.Entry) bool) {
	if st.counts[p] == 0 {
		return
	}
	st.settle(p)
	s := st.u.stmt(sql)
	if s == nil {
		return
	}
	s.bindInt(1, st.id)
	if after != nil {
		s.bindFloat(2, after.Score)
		s.bindText(3, after.Member)
	}
	for st.u.step(s) {
		member := s.text(0)
		r := st.row(member)
		if r == nil {
			r = st.add(&row{Entry: rules.Entry{Member: member}})
			r.read(s)
		}
		if !yield(&r.Entry) {
			s.reset()
			return
		}
	}
}

// Count implements rules.Storage.
func (st *storage) Count(p rules.Place, limit float64) int {
	if st.counts[p] == 0 {
		return 0
	}
	st.settle(p)
	s := st.u.stmt(countUpTo[p])
	if s == nil {
		return 0
	}
	s.bindInt(1, st.id)
	s.bindFloat(2, limit)
	if !st.u.step(s) {
		return 0
	}
	defer s.reset()
	return int(s.int(0))
}

// settle writes what must be written before a place is read.
func (st *storage) settle(p rules.Place) {
	if st.touched[p] {
		st.flushRows()
	}
}

// flushRows writes the rows that changed, many with one statement where they
// change alike: that takes half the time.
func (st *storage) flushRows() {
	var added, gone, leased []*row
	for _, r := range st.loaded {
		switch {
		case !r.exists && r.stored:
			gone = append(gone, r)
		case !r.exists:
		case !r.stored:
			added = append(added, r)
		case r.changes() == claimed && !r.In[rules.Scheduled] && (leased == nil || r.Lease == leased[0].Lease):
			leased = append(leased, r)
		default:
			st.update(r)
		}
	}
	if len(added) > 0 {
		st.needID()
	}
	st.runMany(added, &insertTasks, st.bindAll)
	st.runMany(gone, &deleteTasks, st.bindMember)
	st.runMany(leased, &leaseTasks, st.bindMember)
	for _, r := range gone {
		r.stored = false
	}
	st.touched = [rules.Places]bool{}
}

func (st *storage) needID() {
	if st.id == 0 {
		st.queue.insertQueue()
	}
}

// chunks are how many rows one statement can be about.
var chunks = [...]int{64, 8, 1}

// runMany runs statements about all rows. The parameters of a statement are
// the queue, the lease, and what bind binds of each row from a number on.
func (st *storage) runMany(rows []*row, statements *[len(chunks)]string, bind func(s *stmt, r *row, from int) int) {
	for i, size := range chunks {
		for ; len(rows) >= size; rows = rows[size:] {
			s := st.u.stmt(statements[i])
			if s == nil {
				return
			}
			s.bindInt(1, st.id)
			s.bindInt(2, rows[0].Lease)
			from := 3
			for _, r := range rows[:size] {
				from = bind(s, r, from)
			}
			st.run(s)
			for _, r := range rows[:size] {
				r.keep()
			}
		}
	}
}

func (st *storage) bindMember(s *stmt, r *row, from int) int {
	s.bindText(from, r.Member)
	return from + 1
}

func (st *storage) bindAll(s *stmt, r *row, from int) int {
	st.bind(s, r, from, all)
	return from + rowParameters
}

// insertTasks, deleteTasks and leaseTasks are statements about as many rows as
// chunks says.
var insertTasks, deleteTasks, leaseTasks [len(chunks)]string

func init() {
	for i, size := range chunks {
		values, members := "", ""
		for n := range size {
			from := 3 + n*rowParameters
			values += ", (?1, ?" + strconv.Itoa(from) + parameters(from+1, rowParameters-1) + ")"
			members += ", ?" + strconv.Itoa(3+n)
		}
		insertTasks[i] = "INSERT INTO task (queue, member, due_ms, next_ms, lease, died_ms, failures, rounds, cancelled, error, body) VALUES " + values[2:]
		deleteTasks[i] = "DELETE FROM task WHERE queue = ?1 AND member IN (" + members[2:] + ")"
		leaseTasks[i] = "UPDATE task SET due_ms = NULL, lease = ?2 WHERE queue = ?1 AND member IN (" + members[2:] + ")"
	}
}

// update writes what changed of a row: an index whose column is not named
// costs nothing.
func (st *storage) update(r *row) {
	what := r.changes()
	if what == 0 {
		return
	}
	s := st.u.stmt(updateTask[what])
	if s == nil {
		return
	}
	s.bindInt(1, st.id)
	st.bind(s, r, 3, what)
	st.run(s)
	r.keep()
}

func (st *storage) run(s *stmt) {
	if err := s.run(); err != nil {
		st.u.fail(err)
	}
}

// keep notes that the row is in the file as it is here.
func (r *row) keep() {
	r.stored, r.NewBody = true, false
	r.saved = r.Entry
}

// Parts of a row that are written together: a place each, then the rest.
const (
	sides = 1 << rules.Places
	body  = sides << 1
	all   = body<<1 - 1

	claimed = 1<<rules.Scheduled | 1<<rules.Active
)

// rowParameters is how many parameters bind binds: member, places, failures,
// rounds, cancelled, error, body.
const rowParameters = 10

// updateTask are the statements that write some parts of a row.
var updateTask [all + 1]string

func init() {
	for what := 1; what <= all; what++ {
		var set []string
		for p, column := range placeColumns {
			if what&(1<<p) != 0 {
				set = append(set, column+" = ?"+strconv.Itoa(4+p))
			}
		}
		if what&sides != 0 {
			set = append(set, "failures = ?8, rounds = ?9, cancelled = ?10, error = ?11")
		}
		if what&body != 0 {
			set = append(set, "body = ?12")
		}
		updateTask[what] = "UPDATE task SET " + strings.Join(set, ", ") + " WHERE queue = ?1 AND member = ?3"
	}
}

func (r *row) changes() (what int) {
	for p := range placeColumns {
		if r.In[p] != r.saved.In[p] || r.In[p] && r.Score[p] != r.saved.Score[p] {
			what |= 1 << p
		}
	}
	if r.Failures != r.saved.Failures || r.Rounds != r.saved.Rounds || r.Cancelled != r.saved.Cancelled || r.LastErr != r.saved.LastErr {
		what |= sides
	}
	if r.NewBody {
		what |= body
	}
	return what
}

// bind binds the parts of a row that are to be written, from a number on.
func (st *storage) bind(s *stmt, r *row, from, what int) {
	s.bindText(from, r.Member)
	for p := range placeColumns {
		switch {
		case what&(1<<p) == 0:
		case !r.In[p]:
			s.bindNull(from + 1 + p)
		case rules.Place(p) == rules.Active:
			s.bindInt(from+1+p, r.Lease)
		default:
			s.bindFloat(from+1+p, r.Score[p])
		}
	}
	if what&sides != 0 {
		s.bindInt(from+5, int64(r.Failures))
		s.bindInt(from+6, int64(r.Rounds))
		s.bindInt(from+7, flag(r.Cancelled))
		s.bindText(from+8, r.LastErr)
	}
	switch {
	case what&body == 0:
	case r.HasBody:
		s.bindBlob(from+9, r.Body)
	default:
		s.bindNull(from + 9)
	}
}
