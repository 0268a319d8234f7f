package rules

import "github.com/dueq/dueq"

// Set changes settings. An empty patch changes nothing.
func (q *Queue) Set(patch dueq.SettingsPatch) (dueq.Settings, error) {
	changed, err := q.Settings.With(patch)
	if err != nil {
		return dueq.Settings{}, err
	}
	if len(patch) > 0 {
		changed.Version++
		q.Known, q.Settings = true, changed
	}
	return changed, nil
}
