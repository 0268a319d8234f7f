// Package contract holds what a server answers in tests against the OpenAPI 3.1
// definition that it serves, and remembers which documented answers occurred.
package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	problems "github.com/pb33f/libopenapi-validator/errors"
)

// Answer is an answer that an operation may give. The operation is its method
// and path, such as "GET /v1/queues/{queue}/stats".
type Answer struct {
	Operation, Status string
}

func (a Answer) String() string { return a.Operation + " " + a.Status }

// Contract is a definition. It is safe for concurrent use.
type Contract struct {
	validator validator.Validator
	router    *http.ServeMux
	answers   map[Answer]bool // all that there are; true once it occurred
	turn      sync.Mutex      // at the validator, which is for one at a time
	mu        sync.Mutex      // guards answers
}

// Parse reads a definition in JSON or YAML.
func Parse(definition []byte) (*Contract, error) {
	document, err := libopenapi.NewDocument(definition)
	if err != nil {
		return nil, err
	}
	model, err := document.BuildV3Model()
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(document, config.WithFormatAssertions(), config.WithContentAssertions())
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c := &Contract{validator: v, router: http.NewServeMux(), answers: map[Answer]bool{}}
	for path, item := range model.Model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			name := strings.ToUpper(method) + " " + path
			c.router.Handle(name, http.NotFoundHandler())
			for status := range op.Responses.Codes.FromOldest() {
				c.answers[Answer{name, status}] = false
			}
		}
	}
	return c, nil
}

// ValidateDefinition reports where the definition breaks the rules of OpenAPI.
func (c *Contract) ValidateDefinition() error {
	_, errs := c.validator.ValidateDocument()
	return join(errs)
}

// Operations are all that are documented, ordered by name.
func (c *Contract) Operations() (names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.answers {
		names = append(names, a.Operation)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Answers are all that are documented, ordered by operation and status.
func (c *Contract) Answers() (all []Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a := range c.answers {
		all = append(all, a)
	}
	return sorted(all)
}

// Missing are the documented answers that have not occurred, in that order.
func (c *Contract) Missing() (missing []Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a, occurred := range c.answers {
		if !occurred {
			missing = append(missing, a)
		}
	}
	return sorted(missing)
}

func sorted(answers []Answer) []Answer {
	slices.SortFunc(answers, func(a, b Answer) int { return strings.Compare(a.String(), b.String()) })
	return answers
}

// Operation names the one that a request is for, or nothing.
func (c *Contract) Operation(r *http.Request) string {
	if path.Clean(r.URL.Path) != r.URL.Path {
		return ""
	}
	_, name := c.router.Handler(r)
	return name
}

// Check reports how an answer breaks the contract: its status, media type or
// body is not documented, or it accepts the whole of a request that is not. What
// is refused must be a problem also where no operation is. The bodies of request
// and response are given apart, since those have been read; an endless one is nil.
func (c *Contract) Check(request *http.Request, sent []byte, response *http.Response, body []byte) error {
	media := response.Header.Get("Content-Type")
	if response.StatusCode >= 400 && media != "application/problem+json" {
		return fmt.Errorf("%d is %q, not a problem", response.StatusCode, media)
	}
	name := c.Operation(request)
	if name == "" || request.Method == http.MethodHead || request.Method == http.MethodOptions {
		return nil
	}
	if !c.note(Answer{name, fmt.Sprint(response.StatusCode)}) {
		return fmt.Errorf("%s does not document %d: %s", name, response.StatusCode, body)
	}
	answer := *response
	answer.Body = io.NopCloser(bytes.NewReader(body))
	c.turn.Lock()
	defer c.turn.Unlock()
	_, errs := c.validator.ValidateHttpResponse(withBody(request, sent), &answer)
	if response.StatusCode < 400 && !bytes.Contains(body, partRefused) {
		_, more := c.validator.ValidateHttpRequest(withBody(request, sent))
		errs = append(errs, more...)
	}
	return join(errs)
}

// partRefused is in answers to many items of which some were not as documented.
var partRefused = []byte(`"status":"refused"`)

// note reports whether the answer is documented, and remembers that it occurred.
func (c *Contract) note(a Answer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, documented := c.answers[a]
	if documented {
		c.answers[a] = true
	}
	return documented
}

func withBody(request *http.Request, body []byte) *http.Request {
	r := request.Clone(request.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r
}

func join(errs []*problems.ValidationError) error {
	var all []error
	for _, e := range errs {
		all = append(all, fmt.Errorf("%s %s", e.Message, e.Reason))
		for _, s := range e.SchemaValidationErrors {
			all = append(all, fmt.Errorf("  %s: %s", s.FieldPath, s.Reason))
		}
	}
	return errors.Join(all...)
}
