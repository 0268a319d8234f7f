package memstore

import (
	"cmp"
	"context"
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
func (s *Store) List(ctx context.Context, query dueq.ListQuery) (dueq.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(s.readyFor(ctx, query.Queue), checkList(&query)); err != nil {
		return dueq.Page{}, callError("list", query.Queue, err)
	}
	after, err := parseCursor(query.State, query.Cursor)
	if err != nil {
		return dueq.Page{}, callError("list", query.Queue, err)
	}
	return s.peek(query.Queue).list(query, after, s.now()), nil
}

// checkList reports what is wrong with a query, and fills in its limit.
func checkList(query *dueq.ListQuery) error {
	switch query.State {
	case dueq.StateScheduled, dueq.StateActive, dueq.StateDead:
	default:
		return &dueq.FieldError{Field: "state", Reason: "is not one of scheduled, active, dead"}
	}
	if query.Limit < 0 || query.Limit > dueq.MaxItems {
		return &dueq.FieldError{Field: "limit", Reason: fmt.Sprintf("%d is not 0 to %d", query.Limit, dueq.MaxItems)}
	}
	if query.Limit == 0 {
		query.Limit = defaultLimit
	}
	return nil
}

func (q *queue) list(query dueq.ListQuery, after *item, now instant) dueq.Page {
	items := q.page(query, after, now)
	var page dueq.Page
	if len(items) > query.Limit {
		items = items[:query.Limit]
		page.Cursor = formatCursor(query.State, items[query.Limit-1])
	}
	for _, it := range items {
		if strings.Contains(it.entry.lastErr, query.Error) {
			page.Tasks = append(page.Tasks, q.find(it.entry.member).info(it.entry))
		}
	}
	return page
}

// page returns what the query asks for and, if there is more, at least one
// item beyond.
func (q *queue) page(query dueq.ListQuery, after *item, now instant) []item {
	switch query.State {
	case dueq.StateActive:
		return q.scan(active, after, math.Inf(1), query.Limit+1)
	case dueq.StateDead:
		return q.scan(dead, after, math.Inf(1), query.Limit+1)
	}
	until := math.Inf(1)
	if query.Overdue {
		until = float64(now.ms)
	}
	items := append(q.scan(scheduled, after, until, query.Limit+1), q.scan(next, after, until, query.Limit+1)...)
	slices.SortFunc(items, compareItems)
	return items
}

// scan returns up to n items of a set after a position, or from the start, with scores up to
// until. What is in next is left out if it is in scheduled as well.
func (q *queue) scan(p place, after *item, until float64, n int) []item {
	var items []item
	add := func(it item) bool {
		if it.score > until || len(items) == n {
			return false
		}
		hidden := p == next && it.entry.in[scheduled]
		if !hidden && (after == nil || after.before(it)) {
			items = append(items, it)
		}
		return true
	}
	if after == nil {
		q.sets[p].Scan(add)
	} else {
		q.sets[p].Ascend(*after, add)
	}
	return items
}

func compareItems(a, b item) int {
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.entry.member, b.entry.member))
}

// A cursor is the position of an item, in base64url: one byte for the state,
// eight for the score, the member.
const cursorHead = 9

func formatCursor(state dueq.State, it item) string {
	b := []byte{byte(state)}
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(it.score))
	b = append(b, it.entry.member...)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor returns the position to go on after; nil is the start.
func parseCursor(state dueq.State, cursor string) (*item, error) {
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
	return &item{score, &entry{member: string(b[cursorHead:])}}, nil
}

func badCursor() error {
	return &dueq.FieldError{Field: "cursor", Reason: "is not one of a page of this list"}
}
