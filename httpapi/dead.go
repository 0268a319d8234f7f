package httpapi

import (
	"net/http"

	"github.com/dueq/dueq"
)

func (s *Server) deadRoutes() {
	handleJSON(s, route{
		group: "Dead letters", id: "listDead", method: http.MethodGet, path: "/v1/queues/{queue}/dead",
		summary: "List dead letters by the time they died",
		scopes:  []Scope{ScopeRead}, query: pageParams,
	}, func(c *call, _ *none) (*taskList, error) {
		return s.page(c, "dead", dueq.ListQuery{State: dueq.StateDead})
	})
	handleJSON(s, route{
		group: "Dead letters", id: "requeue", method: http.MethodPost, path: "/v1/queues/{queue}/dead/requeue",
		summary: "Schedule dead letters again, with no failures",
		note:    "Due at once unless told otherwise. kept: the task was scheduled already, that schedule stays.",
		scopes:  []Scope{ScopeAdmin},
	}, s.requeue)
	handleJSON(s, route{
		group: "Dead letters", id: "deleteDead", method: http.MethodPost, path: "/v1/queues/{queue}/dead/delete",
		summary: "Delete dead letters",
		note:    "changed: the task is no dead letter, and stays.",
		scopes:  []Scope{ScopeAdmin},
	}, s.deleteDead)
}

func (s *Server) requeue(c *call, in *requeueRequest) (*results, error) {
	when, err := whenOf(dueq.OpRequeue, in.When)
	if err != nil {
		return nil, err
	}
	return s.changeDead(c, dueq.OpRequeue, in.Members, dueq.Target{When: when})
}

func (s *Server) deleteDead(c *call, in *deleteRequest) (*results, error) {
	return s.changeDead(c, dueq.OpDelete, in.Members, dueq.Target{State: dueq.StateDead})
}

// changeDead applies op to members, with what like has.
func (s *Server) changeDead(c *call, op dueq.Op, members []string, like dueq.Target) (*results, error) {
	return many(members, func(member string) (string, dueq.Target, error) {
		target := like
		target.Member = member
		return member, target, nil
	}, func(all []dueq.Target) ([]dueq.Outcome, error) {
		return s.store.Change(c.r.Context(), c.queue, op, all)
	})
}
