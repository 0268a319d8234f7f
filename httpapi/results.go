package httpapi

import (
	"unicode/utf8"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

// many serves a request about many tasks: what read refuses does not keep the
// rest, which goes to the store in one call.
func many[In, One any](ins []In, read func(In) (member string, one One, err error), do func([]One) ([]dueq.Outcome, error)) (*results, error) {
	out := results{make([]result, len(ins))}
	good := make([]One, 0, len(ins))
	place := make([]int, 0, len(ins)) // of each good one among all
	for i, in := range ins {
		member, one, err := read(in)
		if err != nil {
			out.Results[i] = newResult(member, dueq.Outcome{Status: dueq.StatusRefused, Err: err})
			continue
		}
		out.Results[i].Member = member
		good, place = append(good, one), append(place, i)
	}
	if len(good) == 0 {
		return &out, nil
	}
	outcomes, err := do(good)
	for i, o := range outcomes {
		r := &out.Results[place[i]]
		o.Err = asJSON(o.Err)
		*r = newResult(r.Member, o)
	}
	if err != nil {
		return nil, brokeOff(asJSON(err), out.Results)
	}
	return &out, nil
}

// brokeOff is the error of a call about many, with what is known of them.
func brokeOff(err error, known []result) error {
	p := *problemOf(err)
	for i := range known {
		if known[i].Status == "" {
			known[i].Status = dueq.StatusUnknown.String()
		}
		if known[i].Status != dueq.StatusUnknown.String() {
			p.Results = known
		}
	}
	return &p
}

// newResult shows what happened to one of many.
func newResult(member string, o dueq.Outcome) result {
	r := result{Member: member, Status: o.Status.String(), DueAt: view.Instant(o.Due)}
	if !utf8.ValidString(member) {
		r.MemberBase64 = []byte(member)
	}
	if o.Err != nil {
		r.Problem = problemOf(o.Err)
	}
	return r
}
