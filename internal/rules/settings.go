package rules

import "github.com/dueq/dueq"

// Set changes settings. An empty patch changes nothing.
func (q *Queue) Set(patch dueq.SettingsPatch) (dueq.Settings, error) {
	changed, err := q.Settings.With(patch)
	if err != nil {
		return dueq.Settings{}, err
	}
	if changed.WaitReplicas > 0 {
		return dueq.Settings{}, &dueq.FieldError{Field: "wait_replicas", Reason: "must be 0, this store has no replicas"}
	}
	if len(patch) > 0 {
		changed.Version++
		q.Known, q.Settings = true, changed
	}
	return changed, nil
}
