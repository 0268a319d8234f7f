package httpapi

import (
	"net/http"
	"testing"
)

func TestOpenAPI_is_a_valid_definition(t *testing.T) {
	t.Parallel()
	a := newAPITest(t)
	v, err := definition()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.ValidateDefinition(); err != nil {
		t.Error(err)
	}
	a.do(http.MethodGet, "/openapi.json", nil).is(200).has(`"openapi":"3.1.0"`)
}
