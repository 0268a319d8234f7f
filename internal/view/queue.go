package view

import (
	"math"

	"github.com/dueq/dueq"
)

// Stats is the state of one queue.
type Stats struct {
	Queue       string  `json:"queue"`
	Now         Instant `json:"now" doc:"The store's clock."`
	Scheduled   int64   `json:"scheduled" doc:"Due or not."`
	Overdue     int64   `json:"overdue" doc:"Of the scheduled ones, those due by now."`
	Active      int64   `json:"active"`
	Dead        int64   `json:"dead"`
	NextDueAt   Instant `json:"next_due_at"`
	NextLeaseAt Instant `json:"next_lease_at" doc:"First end of a lease."`
	LastClaimAt Instant `json:"last_claim_at"`
	Paused      bool    `json:"paused"`
	Totals      Totals  `json:"totals" doc:"Events since the queue began."`
	Error       string  `json:"error" doc:"Why it could not be read; the rest is zero then."`
}

// Totals must have the fields of dueq.Totals, in their order.
type Totals struct {
	Scheduled  int64 `json:"scheduled"`
	Claimed    int64 `json:"claimed"`
	Forwarded  int64 `json:"forwarded"`
	Acked      int64 `json:"acked"`
	Retried    int64 `json:"retried"`
	Again      int64 `json:"again"`
	Released   int64 `json:"released"`
	Died       int64 `json:"died"`
	Ended      int64 `json:"ended"`
	Stopped    int64 `json:"stopped"`
	Superseded int64 `json:"superseded"`
	Refused    int64 `json:"refused"`
	Requeued   int64 `json:"requeued"`
	Cancelled  int64 `json:"cancelled"`
	Deleted    int64 `json:"deleted"`
	Trimmed    int64 `json:"trimmed"`
}

// NewStats shows the counts of a queue.
func NewStats(s dueq.QueueStats) Stats {
	v := Stats{
		Queue: s.Queue, Now: Instant(s.Now),
		Scheduled: s.Scheduled, Overdue: s.Overdue, Active: s.Active, Dead: s.Dead,
		NextDueAt: Instant(s.NextDue), NextLeaseAt: Instant(s.NextLease), LastClaimAt: Instant(s.LastClaim),
		Paused: s.Paused, Totals: Totals(s.Totals),
	}
	if s.Err != nil {
		v.Error = s.Err.Error()
	}
	return v
}

// QueueSettings is the settings of one queue, and which of them somebody set.
type QueueSettings struct {
	Queue    string   `json:"queue"`
	Version  int64    `json:"version" doc:"Grows with every change."`
	Settings Settings `json:"settings"`
	Changed  []string `json:"changed" nullable:"false" doc:"Names of those that are not the default, as the command line has them."`
}

// NewQueueSettings shows the settings of a queue.
func NewQueueSettings(queue string, s dueq.Settings) QueueSettings {
	v := QueueSettings{queue, s.Version, NewSettings(s), []string{}}
	values, defaults := s.Format(), dueq.DefaultSettings().Format()
	for _, name := range dueq.SettingNames() {
		if values[name] != defaults[name] {
			v.Changed = append(v.Changed, name)
		}
	}
	return v
}

// Settings of a queue.
type Settings struct {
	Batch              int     `json:"batch"`
	Concurrency        int     `json:"concurrency"`
	TimeoutMs          int64   `json:"timeout_ms"`
	LeaseMs            int64   `json:"lease_ms"`
	LeaseMaxMs         int64   `json:"lease_max_ms"`
	Retries            int     `json:"retries"`
	RetryFirstMs       int64   `json:"retry_first_ms"`
	RetryFactor        float64 `json:"retry_factor"`
	RetryCapMs         int64   `json:"retry_cap_ms"`
	RetryJitterPercent float64 `json:"retry_jitter_percent"`
	Delivery           string  `json:"delivery"`
	MaxLateMs          int64   `json:"max_late_ms" doc:"Zero is off."`
	Priority           bool    `json:"priority"`
	DeadKeepMs         int64   `json:"dead_keep_ms"`
	BodyMax            int     `json:"body_max"`
	Paused             bool    `json:"paused"`
	WaitReplicas       int     `json:"wait_replicas"`
	Forward            string  `json:"forward" doc:"Empty is off."`
	Push               string  `json:"push" doc:"Empty is off."`
}

// NewSettings shows settings.
func NewSettings(s dueq.Settings) Settings {
	return Settings{
		Batch: s.Batch, Concurrency: s.Concurrency,
		TimeoutMs: s.Timeout.Milliseconds(), LeaseMs: s.Lease.Milliseconds(), LeaseMaxMs: s.LeaseMax.Milliseconds(),
		Retries: s.Retries, RetryFirstMs: s.RetryFirst.Milliseconds(), RetryFactor: s.RetryFactor,
		RetryCapMs: s.RetryCap.Milliseconds(), RetryJitterPercent: math.Round(s.RetryJitter*1e6) / 1e4,
		Delivery: s.Delivery.String(), MaxLateMs: s.MaxLate.Milliseconds(), Priority: s.Priority,
		DeadKeepMs: s.DeadKeep.Milliseconds(), BodyMax: s.BodyMax, Paused: s.Paused, WaitReplicas: s.WaitReplicas,
		Forward: s.Forward, Push: s.Push,
	}
}
