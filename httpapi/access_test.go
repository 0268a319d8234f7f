package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dueq/dueq"
)

// tokenOf returns a token whose secret is its name and "-secret".
func tokenOf(name string, scopes ...Scope) Token {
	return Token{Name: name, Hash: HashToken(name + "-secret"), Scopes: scopes}
}

func gateOf(t testing.TB, tokens ...Token) *gate {
	t.Helper()
	g, err := newGate(tokens, false)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// wantRefused checks that err is a Problem of the kind.
func wantRefused(t testing.TB, name string, err error, k kind, challenge string) {
	t.Helper()
	p, ok := err.(*Problem)
	if !ok || p.Type != typePrefix+k.name || p.Status != k.status {
		t.Errorf("%s: got %#v, want %s", name, err, k.name)
		return
	}
	if got := p.header.Get("WWW-Authenticate"); got != challenge {
		t.Errorf("%s: challenge %q, want %q", name, got, challenge)
	}
}

func wantRefusedField(t testing.TB, name string, err error, field string) {
	t.Helper()
	var got *dueq.FieldError
	if !errors.As(err, &got) || got.Field != field || got.Reason == "" || !errors.Is(err, dueq.ErrInvalid) {
		t.Errorf("%s: got %v, want a FieldError of %s", name, err, field)
	}
}

func TestTokenIsRefused(t *testing.T) {
	t.Parallel()
	hash := HashToken("x")
	for name, tc := range map[string]struct {
		change func(*Token)
		field  string
	}{
		"without a name":               {func(t *Token) { t.Name = "" }, "name"},
		"with a line in its name":      {func(t *Token) { t.Name = "x\nlevel=ERROR" }, "name"},
		"with a name that ends in \\n": {func(t *Token) { t.Name = "x\n" }, "name"},
		"with a long name":             {func(t *Token) { t.Name = strings.Repeat("x", 65) }, "name"},
		"without a hash":               {func(t *Token) { t.Hash = "" }, "hash"},
		"with its secret as hash":      {func(t *Token) { t.Hash = "hunter2" }, "hash"},
		"with another hash":            {func(t *Token) { t.Hash = "sha512:" + strings.TrimPrefix(hash, "sha256:") }, "hash"},
		"with a short hash":            {func(t *Token) { t.Hash = hash[:len(hash)-2] }, "hash"},
		"with a long hash":             {func(t *Token) { t.Hash += "00" }, "hash"},
		"with half a byte more":        {func(t *Token) { t.Hash += "0" }, "hash"},
		"with a hash and a space":      {func(t *Token) { t.Hash += " " }, "hash"},
		"with an empty secret":         {func(t *Token) { t.Hash = HashToken("") }, "hash"},
		"without scopes":               {func(t *Token) { t.Scopes = nil }, "scopes"},
		"with an unknown scope":        {func(t *Token) { t.Scopes = append(t.Scopes, "write") }, "scopes"},
		"with a scope in upper case":   {func(t *Token) { t.Scopes = []Scope{"Read"} }, "scopes"},
		"with an empty scope":          {func(t *Token) { t.Scopes = []Scope{""} }, "scopes"},
		"with an empty pattern":        {func(t *Token) { t.Queues = []string{"a", ""} }, "queues"},
		"with a blank pattern":         {func(t *Token) { t.Queues = []string{" "} }, "queues"},
		"with another wildcard":        {func(t *Token) { t.Queues = []string{"a?"} }, "queues"},
		"with a character class":       {func(t *Token) { t.Queues = []string{"[a-z]*"} }, "queues"},
		"with an escape":               {func(t *Token) { t.Queues = []string{`a\*`} }, "queues"},
		"with a slash in a pattern":    {func(t *Token) { t.Queues = []string{"a/*"} }, "queues"},
		"with a list in one pattern":   {func(t *Token) { t.Queues = []string{"a,b"} }, "queues"},
		"with a long pattern":          {func(t *Token) { t.Queues = []string{strings.Repeat("*", 129)} }, "queues"},
	} {
		token := Token{Name: "shop", Hash: hash, Scopes: []Scope{ScopeRead}, Queues: []string{"order:*"}}
		if err := token.Validate(); err != nil {
			t.Fatalf("before the change: %v", err)
		}
		tc.change(&token)
		err := token.Validate()
		wantRefusedField(t, name, err, tc.field)
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the secret is in %v", name, err)
		}
		_, err = newGate([]Token{tokenOf("first", ScopeRead), token}, false)
		wantRefusedField(t, name, err, "tokens[1]."+tc.field)
	}
}

func TestTwoTokensDifferInNameAndSecret(t *testing.T) {
	t.Parallel()
	a, b := tokenOf("a", ScopeRead), tokenOf("b", ScopeRead)
	sameName, sameSecret := b, a
	sameName.Name, sameSecret.Name = "a", "c"
	_, err := newGate([]Token{b, a, sameName}, false)
	wantRefusedField(t, "same name", err, "tokens[2].name")
	_, err = newGate([]Token{a, b, sameSecret}, false)
	wantRefusedField(t, "same secret", err, "tokens[2].hash")
	sameSecret.Hash = "sha256:" + strings.ToUpper(strings.TrimPrefix(sameSecret.Hash, "sha256:"))
	_, err = newGate([]Token{a, sameSecret}, false)
	wantRefusedField(t, "same secret in upper case", err, "tokens[1].hash")
}

func TestNewTokensAreRandomAndCanBeSent(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		secret, hash := NewToken()
		if seen[secret] || !validSecret.MatchString(secret) || HashToken(secret) != hash || strings.Contains(hash, secret) {
			t.Fatalf("secret %q, hash %q", secret, hash)
		}
		seen[secret] = true
		// 32 letters and digits for 5 bits each
		if random, ok := strings.CutPrefix(secret, "dueq_"); !ok || len(random)*5 < 128 {
			t.Fatalf("%q has fewer than 128 random bits", secret)
		}
	}
	if got, want := HashToken("abc"), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; got != want {
		t.Errorf("hash of abc is %s, want %s", got, want)
	}
}

const (
	challengeFirst   = `Bearer realm="dueq"`
	challengeInvalid = `Bearer realm="dueq", error="invalid_token"`
)

func TestWhoIsNotIdentified(t *testing.T) {
	t.Parallel()
	g := gateOf(t, tokenOf("a", ScopeRead), tokenOf("b", ScopeAdmin))
	for name, tc := range map[string]struct {
		headers   []string
		query     string
		challenge string
	}{
		"nothing":                  {nil, "", challengeFirst},
		"empty":                    {[]string{""}, "", challengeInvalid},
		"scheme only":              {[]string{"Bearer"}, "", challengeInvalid},
		"scheme and spaces":        {[]string{"Bearer   "}, "", challengeInvalid},
		"no scheme":                {[]string{"a-secret"}, "", challengeInvalid},
		"basic":                    {[]string{"Basic YS1zZWNyZXQ6"}, "", challengeInvalid},
		"another scheme":           {[]string{"BearerX a-secret"}, "", challengeInvalid},
		"tab instead of space":     {[]string{"Bearer\ta-secret"}, "", challengeInvalid},
		"wrong":                    {[]string{"Bearer c-secret"}, "", challengeInvalid},
		"prefix":                   {[]string{"Bearer a-secre"}, "", challengeInvalid},
		"longer":                   {[]string{"Bearer a-secret1"}, "", challengeInvalid},
		"other case":               {[]string{"Bearer A-secret"}, "", challengeInvalid},
		"padded":                   {[]string{"Bearer a-secret="}, "", challengeInvalid},
		"trailing space":           {[]string{"Bearer a-secret "}, "", challengeInvalid},
		"two secrets":              {[]string{"Bearer a-secret b-secret"}, "", challengeInvalid},
		"list":                     {[]string{"Bearer a-secret, Bearer b-secret"}, "", challengeInvalid},
		"quoted":                   {[]string{`Bearer "a-secret"`}, "", challengeInvalid},
		"hash":                     {[]string{"Bearer " + HashToken("a-secret")}, "", challengeInvalid},
		"hash digits":              {[]string{"Bearer " + strings.TrimPrefix(HashToken("a-secret"), "sha256:")}, "", challengeInvalid},
		"not ASCII":                {[]string{"Bearer a-secrét"}, "", challengeInvalid},
		"full width":               {[]string{"Bearer ａ-secret"}, "", challengeInvalid},
		"not UTF-8":                {[]string{"Bearer a-secret\xff"}, "", challengeInvalid},
		"NUL":                      {[]string{"Bearer a-secret\x00"}, "", challengeInvalid},
		"newline":                  {[]string{"Bearer a-secret\n"}, "", challengeInvalid},
		"10 KB":                    {[]string{"Bearer " + strings.Repeat("a", 10_000)}, "", challengeInvalid},
		"two headers":              {[]string{"Bearer a-secret", "Bearer a-secret"}, "", challengeInvalid},
		"second header good":       {[]string{"Bearer c-secret", "Bearer a-secret"}, "", challengeInvalid},
		"in the query":             {nil, "access_token=a-secret", challengeInvalid},
		"in the query as well":     {[]string{"Bearer a-secret"}, "x=1&access_token=a-secret", challengeInvalid},
		"in a query, escaped name": {[]string{"Bearer a-secret"}, "access%5ftoken=a-secret", challengeInvalid},
		"in a query with errors":   {[]string{"Bearer a-secret"}, "x=%zz&access_token=a-secret", challengeInvalid},
	} {
		r := httptest.NewRequest("GET", "/v1/queues", nil)
		r.URL.RawQuery = tc.query
		if tc.headers != nil {
			r.Header["Authorization"] = tc.headers
		}
		who, err := g.identify(r)
		if who != nil {
			t.Errorf("%s: is %s", name, who.name())
		}
		wantRefused(t, name, err, kindUnauthorized, tc.challenge)
		if p, ok := err.(*Problem); ok && strings.Contains(fmt.Sprint(p.Detail, p.header), "secret") {
			t.Errorf("%s: the answer quotes what was sent: %s", name, p.Detail)
		}
	}
}

func TestWhoIsIdentified(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", secretMax)
	g := gateOf(t, tokenOf("a", ScopeRead), tokenOf("b", ScopeRead), tokenOf("c", ScopeRead),
		Token{Name: "long", Hash: HashToken(long), Scopes: []Scope{ScopeRead}}, Token{Name: "all", Hash: HashToken("aZ09-._~+/=="), Scopes: []Scope{ScopeRead}})
	for header, want := range map[string]string{
		"Bearer a-secret": "a", "bearer b-secret": "b", "BEARER c-secret": "c", "Bearer   a-secret": "a",
		"Bearer " + long: "long", "Bearer aZ09-._~+/==": "all",
	} {
		r := httptest.NewRequest("GET", "/v1/queues?x=1", nil)
		r.Header.Set("Authorization", header)
		if who, err := g.identify(r); err != nil || who.name() != want {
			t.Errorf("%q: %v, %v; want %s", header, who, err, want)
		}
	}
}

func TestSecretsThatCannotBeSentAreNobodys(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{strings.Repeat("x", secretMax+1), strings.Repeat("x", 10_000), "a secret", "secrét", "a\x00", "a\xff", "a\n", "a,b", `"a"`, "a=b", "="} {
		g := gateOf(t, Token{Name: "a", Hash: HashToken(secret), Scopes: []Scope{ScopeRead}})
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Authorization"] = []string{"Bearer " + secret}
		_, err := g.identify(r)
		wantRefused(t, fmt.Sprintf("%.10q", secret), err, kindUnauthorized, challengeInvalid)
	}
}

func TestTheGateHasTokensOfItsOwn(t *testing.T) {
	t.Parallel()
	tokens := []Token{tokenOf("a", ScopeRead)}
	g := gateOf(t, tokens...)
	tokens[0].Scopes, tokens[0].Name = []Scope{ScopeAdmin}, "b"
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer a-secret")
	who, err := g.identify(r)
	if err != nil || who.name() != "a" || who.may(ScopeAdmin, "") == nil {
		t.Errorf("%+v, %v", who, err)
	}
}

func TestTheGateDoesNotKeepSecrets(t *testing.T) {
	t.Parallel()
	g := gateOf(t, tokenOf("a", ScopeRead))
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer a-secret")
	who, err := g.identify(r)
	if err != nil {
		t.Fatal(err)
	}
	if kept := fmt.Sprintf("%+v %+v %+v", *g, *who, *who.token); strings.Contains(kept, "a-secret") {
		t.Error(kept)
	}
}

func TestWithoutTokensEverybodyMayDoEverything(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("Authorization", "Bearer whatever")
	who, err := gateOf(t).identify(r)
	if err != nil {
		t.Fatal(err)
	}
	if who.name() != "" || !who.sees("order:close") || who.may(ScopeAdmin, "order:close") != nil {
		t.Errorf("%+v", who)
	}
}

func TestAScopeImpliesNoOtherExceptAdmin(t *testing.T) {
	t.Parallel()
	for _, has := range scopes {
		who := &caller{&Token{Scopes: []Scope{has}}}
		for _, asked := range scopes {
			err := who.may(asked, "order:close")
			if has == asked || has == ScopeAdmin {
				if err != nil {
					t.Errorf("%s for %s: %v", has, asked, err)
				}
				continue
			}
			wantRefused(t, fmt.Sprintf("%s for %s", has, asked), err, kindForbidden,
				fmt.Sprintf(`Bearer realm="dueq", error="insufficient_scope", scope="%s"`, asked))
		}
	}
	who := &caller{&Token{Scopes: []Scope{ScopeConsume, ScopePublish}}}
	if who.may(ScopePublish, "") != nil || who.may(ScopeConsume, "") != nil || who.may(ScopeRead, "") == nil {
		t.Error("two scopes are not what each allows")
	}
	if (&caller{&Token{Scopes: []Scope{ScopeRead}}}).may("", "q") == nil {
		t.Error("an operation without a scope is allowed")
	}
}

func TestATokenIsForItsQueues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		patterns []string
		queue    string
		want     bool
	}{
		{nil, "order:close", true},
		{[]string{"order:close"}, "order:close", true},
		{[]string{"order:close"}, "order:close2", false},
		{[]string{"order:close"}, "order:clos", false},
		{[]string{"order:close"}, "xorder:close", false},
		{[]string{"order:close"}, "Order:close", false},
		{[]string{"ORDER:*"}, "order:close", false},
		{[]string{"order:*"}, "order:close", true},
		{[]string{"order:*"}, "order:", true},
		{[]string{"order:*"}, "order", false},
		{[]string{"order:*"}, "reorder:close", false},
		{[]string{"order.*"}, "order:close", false},
		{[]string{"*"}, "order:close", true},
		{[]string{"**"}, "a", true},
		{[]string{"*:close"}, "order:close", true},
		{[]string{"*:close"}, "order:close:now", false},
		{[]string{"a*b*c"}, "a-c-b-b-c", true},
		{[]string{"a*b*c"}, "acb", false},
		{[]string{"*a*"}, "bcd", false},
		{[]string{"a", "b*"}, "bc", true},
		{[]string{"a", "b*"}, "c", false},
		{[]string{"order:*"}, "order:close/../sms", false},
		{[]string{"*"}, "a/b", false},
		{nil, "*", true}, // all queues at once
		{[]string{"**"}, "*", true},
		{[]string{"order:*", "a", "*b", "b*"}, "*", false},
		{[]string{"order:*"}, "order:close\x00", true}, // no store has such a queue; the pattern is right all the same
		{[]string{"a"}, "a\n", false},
		{[]string{"a"}, "а", false}, // Cyrillic
	} {
		who := &caller{&Token{Scopes: []Scope{ScopeAdmin}, Queues: tc.patterns}}
		if got := who.sees(tc.queue); got != tc.want {
			t.Errorf("%v sees %q: %t", tc.patterns, tc.queue, got)
		}
		err := who.may(ScopePublish, tc.queue)
		if tc.want != (err == nil) {
			t.Errorf("%v may publish in %q: %v", tc.patterns, tc.queue, err)
		}
		if !tc.want {
			wantRefused(t, tc.queue, err, kindForbidden, `Bearer realm="dueq", error="insufficient_scope"`)
		}
	}
}

func TestManyStarsAreQuick(t *testing.T) {
	t.Parallel()
	who := &caller{&Token{Queues: []string{strings.Repeat("*a", 64)}}}
	if who.sees(strings.Repeat("a", 127) + "b") { // backtracking would take years
		t.Error("a pattern that ends in a sees a queue that ends in b")
	}
}

func FuzzQueuePatterns(f *testing.F) {
	for _, seed := range [][2]string{{"order:*", "order:close"}, {"*a*b", "xaxb"}, {"**", ""}, {"a.b", "aXb"}, {"a-*", "a-"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, queue string) {
		token := tokenOf("a", ScopeRead)
		token.Queues = []string{pattern}
		if token.Validate() != nil || strings.Contains(queue, "/") {
			return
		}
		expression := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$"
		want := regexp.MustCompile(expression).MatchString(strings.ToValidUTF8(queue, "?"))
		if got := (&caller{&token}).sees(queue); got != want {
			t.Errorf("%q sees %q: %t, want %t", pattern, queue, got, want)
		}
	})
}

func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{"", "Bearer a-secret", "bearer  a-secret", "Bearer a-secret ", "Basic a", "Bearer\x00a-secret", "Bearer a-secret, Bearer a-secret"} {
		f.Add(seed)
	}
	g := gateOf(f, tokenOf("a", ScopeRead))
	good := regexp.MustCompile(`^(?i:bearer) +a-secret$`)
	f.Fuzz(func(t *testing.T, header string) {
		r := &http.Request{Header: http.Header{"Authorization": {header}}, URL: httptest.NewRequest("GET", "/", nil).URL}
		who, err := g.identify(r)
		if got, want := err == nil, good.MatchString(header); got != want {
			t.Fatalf("%q: %v", header, err)
		}
		if err == nil && who.name() != "a" {
			t.Fatalf("%q is %s", header, who.name())
		}
		if err != nil {
			wantRefused(t, header, err, kindUnauthorized, challengeInvalid)
		}
	})
}

func TestScopesAreAllThereAre(t *testing.T) {
	t.Parallel()
	if want := []Scope{"publish", "consume", "read", "admin"}; !slices.Equal(scopes, want) {
		t.Errorf("%v, want %v", scopes, want)
	}
}
