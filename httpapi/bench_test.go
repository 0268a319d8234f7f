package httpapi

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dueq/dueq/memstore"
)

// BenchmarkHandler is one task a request, without a network.
func BenchmarkHandler(b *testing.B) {
	s, err := New(memstore.New(memstore.Options{}), Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for n := range b.N {
		body := strings.NewReader(fmt.Sprintf(`{"id":"order_%d","kind":"pay_timeout","delay_ms":1800000,"body":{"n":1}}`, n))
		r := httptest.NewRequest("POST", "/v1/queues/order:close/tasks", body)
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if s.Handler().ServeHTTP(w, r); w.Code != 201 {
			b.Fatal(w.Body)
		}
	}
}
