package openstore

import (
	"context"
	"time"

	"github.com/dueq/dueq"
)

// Away returns a store that is not there yet: every call fails with
// ErrUnavailable and the cause.
func Away(cause error) dueq.Store { return away{dueq.Unavailable(cause)} }

type away struct{ err error }

func (a away) Schedule(context.Context, []dueq.Item) ([]dueq.Outcome, error) { return nil, a.err }

func (a away) Change(context.Context, string, dueq.Op, []dueq.Target) ([]dueq.Outcome, error) {
	return nil, a.err
}

func (a away) Claim(context.Context, dueq.ClaimRequest) (dueq.Claim, error) {
	return dueq.Claim{}, a.err
}

func (a away) Settle(context.Context, string, []dueq.Result) ([]dueq.Outcome, error) {
	return nil, a.err
}

func (a away) Extend(context.Context, string, []dueq.Lease, time.Duration) ([]dueq.Outcome, error) {
	return nil, a.err
}

func (a away) Get(context.Context, string, []string) ([]dueq.Info, error) { return nil, a.err }

func (a away) List(context.Context, dueq.ListQuery) (dueq.Page, error) { return dueq.Page{}, a.err }

func (a away) Stats(context.Context, ...string) ([]dueq.QueueStats, error) { return nil, a.err }

func (a away) Settings(context.Context, string) (dueq.Settings, error) {
	return dueq.DefaultSettings(), a.err
}

func (a away) SetSettings(context.Context, string, dueq.SettingsPatch) (dueq.Settings, error) {
	return dueq.Settings{}, a.err
}

func (a away) Wake(context.Context) (<-chan dueq.Hint, error) { return nil, a.err }

func (a away) Close() error { return nil }
