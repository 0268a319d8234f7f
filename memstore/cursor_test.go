package memstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/memstore"
)

// FuzzCursor checks that a cursor is refused, the field named, or is a place in
// the list.
func FuzzCursor(f *testing.F) {
	store := memstore.New(memstore.Options{})
	for _, member := range []string{"a", "b", "c"} {
		store.Add("q", member, float64(time.Now().Add(time.Hour).UnixMilli()))
	}
	query := dueq.ListQuery{Queue: "q", State: dueq.StateScheduled, Limit: 1}
	page, err := store.List(f.Context(), query)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(page.Cursor)
	f.Add("AX_4AAAAAAAAYQ") // not a number
	f.Add("not base64!")
	f.Fuzz(func(t *testing.T, cursor string) {
		query := query
		query.Cursor, query.Limit = cursor, 0
		page, err := store.List(t.Context(), query)
		var field *dueq.FieldError
		if err != nil && (!errors.As(err, &field) || field.Field != "cursor") {
			t.Errorf("%q: %v, want a FieldError of cursor", cursor, err)
		}
		if len(page.Tasks) > 3 || err != nil && len(page.Tasks) > 0 {
			t.Errorf("%q: listed %d tasks of 3, %v", cursor, len(page.Tasks), err)
		}
	})
}
