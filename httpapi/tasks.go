package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/item"
	"github.com/dueq/dueq/internal/view"
)

const (
	tasksPath = "/v1/queues/{queue}/tasks"
	taskPath  = tasksPath + "/{member}"
)

func (s *Server) taskRoutes() {
	handleJSON(s, route{
		group: "Tasks", id: "schedule", method: http.MethodPost, path: tasksPath,
		summary: "Schedule a task",
		note:    "201 is a new task. 200 says what became of one that was there: replaced, kept, or running, which will run once more.",
		scopes:  []Scope{ScopePublish}, limit: largeBody, created: true,
	}, s.schedule)
	handleJSON(s, route{
		group: "Tasks", id: "list", method: http.MethodGet, path: tasksPath,
		summary: "List tasks by due time, end of lease or death",
		scopes:  []Scope{ScopeRead}, query: append([]*huma.Param{stateParam}, pageParams...),
	}, s.list)
	handleJSON(s, route{
		group: "Tasks", id: "get", method: http.MethodGet, path: taskPath,
		summary: "Look a task up",
		scopes:  []Scope{ScopeRead}, fails: []error{dueq.ErrNotFound},
	}, s.get)
	handleJSON(s, route{
		group: "Tasks", id: "reschedule", method: http.MethodPatch, path: taskPath,
		summary: "Give a scheduled task a new due time",
		scopes:  []Scope{ScopePublish}, fails: []error{dueq.ErrNotFound, dueq.ErrRunning, dueq.ErrDead},
	}, s.reschedule)
	handleJSON(s, route{
		group: "Tasks", id: "cancel", method: http.MethodDelete, path: taskPath,
		summary: "Take a scheduled task away",
		note:    "409 running: the task runs now; its later schedule is gone and this run is its last, however it ends. With running=true it is ended too: its lease is gone.",
		scopes:  []Scope{ScopePublish}, query: []*huma.Param{runningParam},
		fails: []error{dueq.ErrNotFound, dueq.ErrRunning, dueq.ErrDead},
	}, s.cancel)
}

func (s *Server) manyTaskRoutes() {
	handleJSON(s, route{
		group: "Tasks", id: "scheduleMany", method: http.MethodPost, path: tasksPath + "/batch",
		summary: "Schedule up to 1,000 tasks",
		note:    "What is wrong with one item is in its result and does not keep the others.",
		scopes:  []Scope{ScopePublish}, limit: largeBody, takes: batchRequest{},
	}, s.scheduleMany)
	handleJSON(s, route{
		group: "Tasks", id: "getMany", method: http.MethodPost, path: tasksPath + "/get",
		summary: "Look up to 1,000 tasks up",
		note:    "Tasks are in the order of members. Where bodies are long, only those of the first members are answered, at least one; ask again for the rest.",
		scopes:  []Scope{ScopeRead},
	}, s.getMany)
	handleJSON(s, route{
		group: "Tasks", id: "change", method: http.MethodPost, path: tasksPath + "/change",
		summary: "Cancel, stop, reschedule, requeue or delete up to 1,000 tasks",
		note:    "requeue and delete need admin, the others publish.",
		scopes:  []Scope{ScopePublish}, limit: largeBody,
	}, s.change)
}

var (
	stateParam = &huma.Param{
		Name: "state", In: "query", Description: "overdue is scheduled and due by now.",
		Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"scheduled", "overdue", "active", "dead"}, Default: "scheduled"},
	}
	runningParam = &huma.Param{
		Name: "running", In: "query", Description: "End a running task too.",
		Schema: &huma.Schema{Type: huma.TypeBoolean, Default: false},
	}
	pageParams = []*huma.Param{
		{Name: "cursor", In: "query", Description: "The cursor of the page before; without it the list begins.", Schema: &huma.Schema{Type: huma.TypeString}},
		{Name: "limit", In: "query", Description: "Most tasks of a page.", Schema: intSchema(1, dueq.MaxItems, 100)},
		{Name: "error", In: "query", Description: "Only tasks whose last error contains it; a page may then be shorter than limit.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
)

func intSchema(low, high float64, normal int) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Minimum: &low, Maximum: &high, Default: normal}
}

func (s *Server) schedule(c *call, in *item.Item) (*view.Outcome, error) {
	it, err := itemOf(c.queue, *in)
	if err != nil {
		return nil, err
	}
	o, err := s.client.Schedule(c.r.Context(), c.queue, it.Task, it.When, it.IfExists)
	if err != nil {
		return nil, asJSON(err)
	}
	member := it.Task.Member()
	if o.Status == dueq.StatusScheduled {
		c.status = http.StatusCreated
		c.w.Header().Set("Location", "/v1/queues/"+url.PathEscape(c.queue)+"/tasks/"+url.PathEscape(member))
	}
	out := view.NewOutcome(c.queue, member, o)
	return &out, nil
}

func itemOf(queue string, in item.Item) (dueq.Item, error) {
	task, err := in.Task()
	if err != nil {
		return dueq.Item{}, err
	}
	when, err := in.When.Parse()
	if err != nil {
		return dueq.Item{}, err
	}
	ifExists, err := dueq.ParseIfExists(in.IfExists)
	return dueq.Item{Queue: queue, Task: task, When: when, IfExists: ifExists}, err
}

// rawBatch is a batchRequest whose items are not read yet: each fails alone.
type rawBatch struct {
	Items []json.RawMessage `json:"items" maxItems:"1000"`
}

func (s *Server) scheduleMany(c *call, in *rawBatch) (*results, error) {
	return many(in.Items, func(raw json.RawMessage) (string, dueq.Item, error) {
		parsed, err := item.Parse(raw, "item")
		if err != nil {
			return "", dueq.Item{}, err
		}
		it, err := itemOf(c.queue, parsed)
		return it.Task.Member(), it, err
	}, func(all []dueq.Item) ([]dueq.Outcome, error) {
		return s.client.ScheduleAll(c.r.Context(), all)
	})
}

func (s *Server) list(c *call, _ *none) (*taskList, error) {
	state, err := c.word("state", stateParam.Schema.Enum)
	if err != nil {
		return nil, err
	}
	q := dueq.ListQuery{State: dueq.StateScheduled}
	switch state {
	case "overdue":
		q.Overdue = true
	case "active":
		q.State = dueq.StateActive
	case "dead":
		q.State = dueq.StateDead
	}
	return s.page(c, state, q)
}

// page answers a list whose parameters, but for the state, are pageParams.
func (s *Server) page(c *call, state string, q dueq.ListQuery) (*taskList, error) {
	var err error
	if q.Limit, err = c.number("limit", 1, dueq.MaxItems); err != nil {
		return nil, err
	}
	q.Queue, q.Cursor, q.Error = c.queue, c.query.Get("cursor"), c.query.Get("error")
	page, err := s.store.List(c.r.Context(), q)
	if err != nil {
		return nil, err
	}
	out := &taskList{Queue: c.queue, State: state, Cursor: page.Cursor, Tasks: make([]view.Task, len(page.Tasks))}
	for i, info := range page.Tasks {
		out.Tasks[i] = view.NewTask(c.queue, info)
	}
	return out, nil
}

func (s *Server) get(c *call, _ *none) (*foundTask, error) {
	infos, err := s.store.Get(c.r.Context(), c.queue, []string{c.member})
	if err != nil {
		return nil, err
	}
	if infos[0].State == dueq.StateNone {
		return nil, fmt.Errorf("%s: %w", c.member, dueq.ErrNotFound)
	}
	out := newFoundTask(c.queue, infos[0])
	return &out, nil
}

func newFoundTask(queue string, info dueq.Info) foundTask {
	return foundTask{view.NewTask(queue, info), view.NewPayload(info.Body)}
}

// getMost is after how many bytes of bodies an answer ends.
const getMost = 4 << 20

func (s *Server) getMany(c *call, in *getRequest) (*foundTasks, error) {
	settings, err := s.store.Settings(c.r.Context(), c.queue)
	if err != nil && !errors.Is(err, dueq.ErrInvalid) {
		return nil, err
	}
	members := in.Members
	for _, m := range in.MembersBase64 {
		members = append(members, string(m))
	}
	if len(members) > dueq.MaxItems {
		return nil, refused("members", fmt.Sprintf("and members_base64 are more than %d", dueq.MaxItems))
	}
	step := min(max(getMost/max(settings.BodyMax, 1), 1), dueq.MaxItems)
	out := &foundTasks{Queue: c.queue, Tasks: make([]foundTask, 0, len(members))}
	for size := 0; size < getMost && len(out.Tasks) < len(members); {
		rest := members[len(out.Tasks):]
		infos, err := s.store.Get(c.r.Context(), c.queue, rest[:min(step, len(rest))])
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			size += len(info.Body)
			out.Tasks = append(out.Tasks, newFoundTask(c.queue, info))
		}
	}
	return out, nil
}

func (s *Server) reschedule(c *call, in *item.When) (*view.Outcome, error) {
	when, err := in.Parse()
	if err != nil {
		return nil, err
	}
	return s.changeOne(c, dueq.OpReschedule, dueq.Target{Member: c.member, When: when})
}

func (s *Server) cancel(c *call, _ *none) (*view.Outcome, error) {
	running, err := c.word("running", []any{"false", "true"})
	if err != nil {
		return nil, err
	}
	op := dueq.OpCancel
	if running == "true" {
		op = dueq.OpStop
	}
	return s.changeOne(c, op, dueq.Target{Member: c.member})
}

func (s *Server) changeOne(c *call, op dueq.Op, target dueq.Target) (*view.Outcome, error) {
	outcomes, err := s.store.Change(c.r.Context(), c.queue, op, []dueq.Target{target})
	if err != nil {
		return nil, asJSON(err)
	}
	o := outcomes[0]
	switch {
	case o.Status == dueq.StatusRunning:
		return nil, dueq.ErrRunning
	case o.Error() != nil:
		return nil, asJSON(o.Error())
	}
	out := view.NewOutcome(c.queue, c.member, o)
	return &out, nil
}
