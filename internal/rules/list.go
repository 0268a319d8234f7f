package rules

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dueq/dueq"
)

// defaultLimit is how many tasks a page has unless asked otherwise.
const defaultLimit = 100

// List pages through the tasks of one queue in one state. A page looks at
// Limit tasks, so one with an Error to look for may be empty and not the last.
func (q *Queue) List(query dueq.ListQuery, now Instant) (dueq.Page, error) {
	if err := checkList(&query); err != nil {
		return dueq.Page{}, err
	}
	after, err := parseCursor(query.State, query.Cursor)
	if err != nil {
		return dueq.Page{}, err
	}
	return q.list(query, after, now), nil
}

// checkList reports what is wrong with a query, and fills in its limit.
func checkList(query *dueq.ListQuery) error {
	switch query.State {
	case dueq.StateScheduled, dueq.StateActive, dueq.StateDead:
	default:
		return &dueq.FieldError{Field: "state", Reason: "is not one of Scheduled, Active, dead"}
	}
	if query.Limit < 0 || query.Limit > dueq.MaxItems {
		return &dueq.FieldError{Field: "limit", Reason: fmt.Sprintf("%d is not 0 to %d", query.Limit, dueq.MaxItems)}
	}
	if query.Limit == 0 {
		query.Limit = defaultLimit
	}
	return nil
}

func (q *Queue) list(query dueq.ListQuery, after *Position, now Instant) dueq.Page {
	items := q.page(query, after, now)
	var page dueq.Page
	if len(items) > query.Limit {
		items = items[:query.Limit]
		page.Cursor = formatCursor(query.State, items[query.Limit-1].position())
	}
	for _, it := range items {
		if strings.Contains(it.entry.LastErr, query.Error) {
			page.Tasks = append(page.Tasks, q.find(it.entry.Member).info(it.entry))
		}
	}
	return page
}

// item is an entry of a list, for a place it is in.
type item struct {
	place Place
	entry *Entry
}

func (it item) position() Position { return it.entry.At(it.place) }

// page returns what the query asks for and, if there is more, at least one
// item beyond.
func (q *Queue) page(query dueq.ListQuery, after *Position, now Instant) []item {
	switch query.State {
	case dueq.StateActive:
		return q.scan(Active, after, math.Inf(1), query.Limit+1)
	case dueq.StateDead:
		return q.scan(Dead, after, math.Inf(1), query.Limit+1)
	}
	until := math.Inf(1)
	if query.Overdue {
		until = float64(now.ms)
	}
	items := append(q.scan(Scheduled, after, until, query.Limit+1), q.scan(Next, after, until, query.Limit+1)...)
	slices.SortFunc(items, compareItems)
	return items
}

// scan returns up to n items of a place after a position, or from the start,
// with scores up to until. What is in Next is left out if it is scheduled as
// well.
func (q *Queue) scan(p Place, after *Position, until float64, n int) []item {
	var items []item
	q.Storage.Ascend(p, after, func(e *Entry) bool {
		if e.Score[p] > until {
			return false
		}
		if hidden := p == Next && e.In[Scheduled]; !hidden {
			items = append(items, item{p, e})
		}
		return len(items) < n
	})
	return items
}

func compareItems(a, b item) int {
	x, y := a.position(), b.position()
	return cmp.Or(cmp.Compare(x.Score, y.Score), cmp.Compare(x.Member, y.Member))
}

// A cursor is the position of an item, in base64url: one byte for the state,
// eight for the score, the member.
const cursorHead = 9

func formatCursor(state dueq.State, at Position) string {
	b := []byte{byte(state)}
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(at.Score))
	b = append(b, at.Member...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor returns the position to go on after; nil is the start.
func parseCursor(state dueq.State, cursor string) (*Position, error) {
	if cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < cursorHead || b[0] != byte(state) {
		return nil, badCursor()
	}
	score := math.Float64frombits(binary.BigEndian.Uint64(b[1:]))
	if math.IsNaN(score) {
		return nil, badCursor()
	}
	return &Position{score, string(b[cursorHead:])}, nil
}

func badCursor() error {
	return &dueq.FieldError{Field: "cursor", Reason: "is not one of a page of this list"}
}
