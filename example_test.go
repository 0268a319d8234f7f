package dueq_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/dueq/dueq"
)

// orders stands for the table of the business. Its close is what SQL says as
// UPDATE orders SET state = 'closed' WHERE id = $1 AND state = 'unpaid'.
type orders struct {
	mu    sync.Mutex // guards state
	state map[string]string
}

// close closes an order if it is unpaid, and reports whether it did.
func (o *orders) close(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.state[id] != "unpaid" {
		return false
	}
	o.state[id] = "closed"
	return true
}

// A handler that may run twice, or after the order was paid: what it does
// depends on the state of the business, checked and changed in one step.
func ExampleHandlerFunc_idempotent() {
	table := &orders{state: map[string]string{"order_1": "unpaid", "order_2": "paid"}}
	closeIfUnpaid := dueq.HandlerFunc(func(_ context.Context, t *dueq.Task) error {
		if !table.close(t.ID) {
			return nil // paid, or closed by an earlier run: done
		}
		fmt.Println("closed", t.ID)
		return nil
	})
	for _, id := range []string{"order_1", "order_1", "order_2"} { // the first one is delivered twice
		if err := closeIfUnpaid.Handle(context.Background(), &dueq.Task{ID: id}); err != nil {
			fmt.Println(err)
		}
	}
	// Output: closed order_1
}
