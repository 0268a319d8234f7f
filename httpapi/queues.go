package httpapi

import (
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

func (s *Server) queueRoutes() {
	handleJSON(s, route{
		group: "Queues", id: "queues", method: http.MethodGet, path: "/v1/queues",
		summary: "Count the tasks of queues",
		note:    "Of the named ones, without any of all that the token is for. One that cannot be read has an error and does not keep the others.",
		scopes:  []Scope{ScopeRead}, query: []*huma.Param{queueParam},
	}, s.queues)
	handleJSON(s, route{
		group: "Queues", id: "stats", method: http.MethodGet, path: "/v1/queues/{queue}/stats",
		summary: "Count the tasks of a queue",
		scopes:  []Scope{ScopeRead},
	}, s.stats)
	handleJSON(s, route{
		group: "Queues", id: "settings", method: http.MethodGet, path: "/v1/queues/{queue}/settings",
		summary: "Show the settings of a queue",
		scopes:  []Scope{ScopeRead},
	}, s.settings)
	handleJSON(s, route{
		group: "Queues", id: "setSettings", method: http.MethodPatch, path: "/v1/queues/{queue}/settings",
		summary: "Change settings of a queue, for every process within a second",
		note:    "null takes the default again. Of several settings all change or none.",
		scopes:  []Scope{ScopeAdmin}, takes: settingsDoc{},
	}, s.setSettings)
	handleJSON(s, route{
		group: "Queues", id: "pause", method: http.MethodPost, path: "/v1/queues/{queue}/pause",
		summary: "Hand out nothing any more; scheduling goes on",
		scopes:  []Scope{ScopeAdmin},
	}, func(c *call, _ *none) (*pauseAnswer, error) { return s.setPaused(c, "on") })
	handleJSON(s, route{
		group: "Queues", id: "resume", method: http.MethodPost, path: "/v1/queues/{queue}/resume",
		summary: "Hand out tasks again",
		scopes:  []Scope{ScopeAdmin},
	}, func(c *call, _ *none) (*pauseAnswer, error) { return s.setPaused(c, "off") })
}

var queueParam = &huma.Param{
	Name: "queue", In: "query", Description: "Names of queues, each a parameter of its own.",
	Schema: &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}, MaxItems: ptr(maxQueues)},
}

// namedQueues are the queues that parameters name, if the caller may read them.
func (c *call) namedQueues() ([]string, error) {
	names := c.query["queue"]
	if len(names) > maxQueues {
		return nil, refused("queue", "is there more than 200 times")
	}
	for _, name := range names {
		if err := c.caller.may(ScopeRead, name); err != nil {
			return nil, err
		}
		if err := dueq.ValidateQueue(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

func (s *Server) queues(c *call, _ *none) (*queueList, error) {
	names, err := c.namedQueues()
	if err != nil {
		return nil, err
	}
	stats, err := s.store.Stats(c.r.Context(), names...)
	if err != nil {
		return nil, err
	}
	out := &queueList{Queues: []queueStats{}}
	for _, q := range stats {
		if c.caller.sees(q.Queue) {
			out.Queues = append(out.Queues, newQueueStats(q))
		}
	}
	return out, nil
}

func newQueueStats(s dueq.QueueStats) queueStats {
	out := queueStats{Stats: view.NewStats(s)}
	if s.Err != nil {
		out.Problem = problemOf(s.Err)
		out.Error = out.Problem.Error()
	}
	return out
}

func (s *Server) stats(c *call, _ *none) (*view.Stats, error) {
	stats, err := s.store.Stats(c.r.Context(), c.queue)
	if err != nil {
		return nil, err
	}
	if stats[0].Err != nil {
		return nil, stats[0].Err
	}
	out := view.NewStats(stats[0])
	return &out, nil
}

func (s *Server) settings(c *call, _ *none) (*settingsAnswer, error) {
	settings, err := s.store.Settings(c.r.Context(), c.queue)
	return newSettingsAnswer(c.queue, settings, err)
}

// newSettingsAnswer shows settings. Those that come with ErrInvalid are good but
// for one.
func newSettingsAnswer(queue string, settings dueq.Settings, err error) (*settingsAnswer, error) {
	out := &settingsAnswer{QueueSettings: view.NewQueueSettings(queue, settings)}
	if errors.Is(err, dueq.ErrInvalid) {
		out.Problem = problemOf(err)
		err = nil
	}
	return out, err
}

func (s *Server) setSettings(c *call, in *settingsPatch) (*settingsAnswer, error) {
	settings, err := s.store.SetSettings(c.r.Context(), c.queue, in.patch)
	if settings == (dueq.Settings{}) && err != nil { // nothing was set
		return nil, renamed(err, in.names)
	}
	return newSettingsAnswer(c.queue, settings, err)
}

func (s *Server) setPaused(c *call, value string) (*pauseAnswer, error) {
	settings, err := s.store.SetSettings(c.r.Context(), c.queue, dueq.SettingsPatch{"paused": value})
	if err != nil {
		return nil, err
	}
	return &pauseAnswer{c.queue, settings.Paused}, nil
}
