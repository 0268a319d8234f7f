package redisstore_test

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// FuzzCursor checks that a cursor is refused, the field named, or is a place in
// the list.
func FuzzCursor(f *testing.F) {
	srv := redistest.Start(f)
	store, err := redisstore.Open(srv.URL(), patient)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = store.Close() })
	for i, member := range []string{"a", "b", "c"} {
		if err := srv.Client(f).ZAdd(f.Context(), redisstore.DefaultPrefix+"q", redis.Z{Score: 1.9e12 + float64(i), Member: member}).Err(); err != nil {
			f.Fatal(err)
		}
	}
	for _, position := range []string{"1900000000001 b", "1.9e12 ", "nan a", "inf a", "-inf a", "0x1p40 a", "0x_1p40 a", "(5 a", "1e999 a", "", "5", " a", "5 \xff"} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(position)))
	}
	f.Add("not base64!")
	f.Fuzz(func(t *testing.T, cursor string) {
		page, err := store.List(t.Context(), dueq.ListQuery{Queue: "q", State: dueq.StateScheduled, Cursor: cursor})
		var field *dueq.FieldError
		if err != nil && (!errors.As(err, &field) || field.Field != "cursor") {
			t.Errorf("%q: %v, want a FieldError of cursor", cursor, err)
		}
		if len(page.Tasks) > 3 || err != nil && len(page.Tasks) > 0 {
			t.Errorf("%q: listed %d tasks of 3, %v", cursor, len(page.Tasks), err)
		}
	})
}
