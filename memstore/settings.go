package memstore

import (
	"context"

	"github.com/dueq/dueq"
)

// Settings returns the settings of a queue.
func (s *Store) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readyFor(ctx, queue); err != nil {
		return dueq.Settings{}, callError("settings", queue, err)
	}
	return s.peek(queue).settings, nil
}

// SetSettings changes settings of a queue at once. An empty patch changes
// nothing.
func (s *Store) SetSettings(ctx context.Context, queue string, patch dueq.SettingsPatch) (dueq.Settings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.readyFor(ctx, queue)
	if err != nil {
		return dueq.Settings{}, callError("set settings", queue, err)
	}
	changed, err := s.peek(queue).settings.With(patch)
	if err != nil {
		return dueq.Settings{}, callError("set settings", queue, err)
	}
	if len(patch) > 0 {
		changed.Version++
		q := s.queue(queue)
		q.known, q.settings = true, changed
	}
	return changed, nil
}
