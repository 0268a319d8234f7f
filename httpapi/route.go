package httpapi

import (
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

// route is one operation: from this it is routed, checked and documented.
type route struct {
	group, id     string
	method, path  string
	summary, note string

	scopes   []Scope       // of which the caller needs one; none: open to everybody
	query    []*huma.Param // parameters after ?; others are refused
	anyQuery bool          // … by whoever serves it
	limit    int64         // of the body, in bytes; smallBody if zero

	takes    any      // what the body is, if the input says too little
	created  bool     // the answer may be 201 with a Location
	media    []string // of an answer that is no JSON
	noStore  bool     // it asks the store nothing
	crowded  bool     // there is a limit to how many are served at once
	notReady bool     // it tells whether the server is ready
	fails    []error  // that it answers, beside what any such route does
}

// none is the input of a route whose requests need no body. One that has a body
// all the same may say {}.
type none struct{}

// Bounds of a request's body, in bytes.
const (
	smallBody = 2 << 20  // names and leases of dueq.MaxItems tasks
	largeBody = 24 << 20 // the longest body_max as base64, or many bodies
)

// handleJSON serves a route whose body is JSON of the type In and whose answer is
// JSON of the type Out.
func handleJSON[In, Out any](s *Server, rt route, serve func(c *call, in *In) (*Out, error)) {
	s.define(rt, reflect.TypeFor[In](), reflect.TypeFor[Out](), func(c *call) error {
		in := new(In)
		if err := c.read(in); err != nil {
			return err
		}
		out, err := serve(c, in)
		if err != nil {
			return err
		}
		return c.answer(out)
	})
}

// define routes and documents a route.
func (s *Server) define(rt route, in, out reflect.Type, serve func(c *call) error) {
	op := rt.operation(s.api.OpenAPI().Components.Schemas, in, out)
	s.api.OpenAPI().AddOperation(op)
	s.api.Adapter().Handle(op, func(ctx huma.Context) {
		r, w := humago.Unwrap(ctx)
		s.serve(&rt, w, r, serve)
	})
}

// operation is the definition of rt for /openapi.json.
func (rt route) operation(schemas huma.Registry, in, out reflect.Type) *huma.Operation {
	op := &huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Tags: []string{rt.group},
		Summary: rt.summary, Description: rt.description(), Parameters: slices.Concat(pathParams(rt.path), rt.query),
		Responses: map[string]*huma.Response{}, Security: rt.security(),
		Metadata: map[string]any{"scopes": rt.scopes},
	}
	if rt.hasBody() {
		if rt.takes != nil {
			in = reflect.TypeOf(rt.takes)
		}
		op.RequestBody = &huma.RequestBody{Required: in != reflect.TypeFor[none](), Content: jsonOf(schemas, in)}
	}
	op.Responses["200"] = &huma.Response{Description: "OK", Content: rt.content(schemas, out)}
	if rt.created {
		op.Responses["201"] = &huma.Response{
			Description: "Created", Content: op.Responses["200"].Content,
			Headers: map[string]*huma.Param{"Location": {Required: true, Schema: &huma.Schema{Type: huma.TypeString}}},
		}
	}
	rt.addProblems(op, schemas)
	return op
}

func (rt route) description() string {
	if len(rt.scopes) == 0 {
		return rt.note
	}
	names := make([]string, len(rt.scopes))
	for i, scope := range rt.scopes {
		names[i] = string(scope)
	}
	return strings.TrimSpace(rt.note + "\n\nWhere tokens are in use it needs one with the scope " + strings.Join(names, " or ") + ".")
}

func (rt route) security() []map[string][]string {
	if len(rt.scopes) == 0 {
		return []map[string][]string{}
	}
	return []map[string][]string{{"token": {}}, {}} // {} is none, where none are in use
}

func (rt route) hasBody() bool { return rt.method != http.MethodGet }

func (rt route) content(schemas huma.Registry, out reflect.Type) map[string]*huma.MediaType {
	if len(rt.media) == 0 {
		return jsonOf(schemas, out)
	}
	content := map[string]*huma.MediaType{}
	for _, media := range rt.media {
		content[media] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	}
	return content
}

func jsonOf(schemas huma.Registry, t reflect.Type) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{jsonMedia: {Schema: schemas.Schema(t, true, t.Name())}}
}

const jsonMedia = "application/json"

var pathParam = regexp.MustCompile(`{(\w+)}`)

var pathParamDocs = map[string]string{
	"queue":  "Letters, digits and _ . : -, at most 128 bytes; first a letter or digit.",
	"member": "id[:kind][:p0-9][#trace], percent-encoded.",
}

func pathParams(path string) []*huma.Param {
	var params []*huma.Param
	for _, m := range pathParam.FindAllStringSubmatch(path, -1) {
		params = append(params, &huma.Param{
			Name: m[1], In: "path", Required: true, Description: pathParamDocs[m[1]], Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	return params
}

// kinds are the problems that rt answers.
func (rt route) kinds() []kind {
	kinds := []kind{kindWrongHost}
	if len(rt.scopes) > 0 {
		kinds = append(kinds, kindUnauthorized)
	}
	if len(rt.scopes) > 0 && len(rt.scopes) < len(scopes) {
		kinds = append(kinds, kindForbidden)
	}
	if rt.hasBody() {
		kinds = append(kinds, kindCrossOrigin, kindTooSlow, kindTooLarge, kindWrongType)
	}
	if !rt.anyQuery { // parameters that are none are refused everywhere else
		kinds = append(kinds, kindInvalid)
	}
	if rt.crowded || rt.limit > smallBody {
		kinds = append(kinds, kindTooMany)
	}
	if !rt.noStore {
		kinds = append(kinds, kindOf(dueq.ErrUnavailable), kindOf(dueq.ErrClosed), kindInternal)
	}
	if rt.notReady {
		kinds = append(kinds, kindNotReady)
	}
	for _, err := range rt.fails {
		kinds = append(kinds, kindOf(err))
	}
	return kinds
}

func (rt route) addProblems(op *huma.Operation, schemas huma.Registry) {
	titles := map[int][]string{}
	headers := map[int]map[string]*huma.Param{}
	for _, k := range rt.kinds() {
		titles[k.status] = append(titles[k.status], k.title)
		headers[k.status] = map[string]*huma.Param{}
		if k.retryable {
			headers[k.status]["Retry-After"] = &huma.Param{Schema: &huma.Schema{Type: huma.TypeString}, Description: "Seconds."}
		}
	}
	problem := schemas.Schema(reflect.TypeFor[Problem](), true, "")
	for _, status := range slices.Sorted(maps.Keys(titles)) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: strings.Join(titles[status], ". ") + ".", Headers: headers[status],
			Content: map[string]*huma.MediaType{problemJSON: {Schema: problem}},
		}
	}
}

// apiTitle is what a Client knows a server of ours by.
const apiTitle = "dueq"

// newAPI returns an empty API whose routes go to mux.
func newAPI(mux *http.ServeMux, version string) huma.API {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[view.Instant](), reflect.TypeFor[*time.Time]())
	return humago.New(mux, huma.Config{OpenAPI: &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: apiTitle, Version: version,
			Description: "A delay queue: tasks are scheduled now and handed out when they come due.",
		},
		Components: &huma.Components{
			Schemas:         schemas,
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}},
		},
	}})
}

// cutCircle gives the problem of a result a schema of its own: it has no results
// in turn, and tools stumble over schemas that go round in circles.
func cutCircle(schemas huma.Registry) {
	all := schemas.Map()
	refusal := *all["Problem"]
	refusal.Properties = maps.Clone(refusal.Properties)
	delete(refusal.Properties, "results")
	all["Refusal"] = &refusal
	all["Result"].Properties["problem"].Ref = "#/components/schemas/Refusal"
}
