package httpapi

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/dueq/dueq"
)

// Scope is what a token may do.
type Scope string

// The scopes. None implies another, except that ScopeAdmin implies all.
const (
	ScopePublish Scope = "publish" // schedule, change and cancel tasks
	ScopeConsume Scope = "consume" // claim, settle and extend
	ScopeRead    Scope = "read"    // look at everything
	ScopeAdmin   Scope = "admin"   // settings, pausing, dead letters, and all of the above
)

var scopes = []Scope{ScopePublish, ScopeConsume, ScopeRead, ScopeAdmin}

// Token is what a bearer token may do. Only a hash of its secret is kept.
type Token struct {
	Name   string  // for the log; 1 to 64 letters, digits and _ . -
	Hash   string  // of the secret, as HashToken returns it
	Scopes []Scope // at least one
	// Queues are the queues it is for, as patterns in which * stands for any
	// run of characters, also none; every other character stands for itself.
	// None at all means every queue.
	Queues []string
}

const (
	hashPrefix   = "sha256:"
	secretPrefix = "dueq_" // lets scanners for leaked secrets recognise one
	secretMax    = 1024    // bytes
)

// NewToken returns a new secret of 130 random bits and its hash.
func NewToken() (secret, hash string) {
	secret = secretPrefix + rand.Text()
	return secret, HashToken(secret)
}

// HashToken returns what Token.Hash must be for the secret: "sha256:" and the
// hex digits of its SHA-256. A fast hash is safe for random secrets only; take
// them from NewToken. Only letters, digits and - . _ ~ + / with = at the end, up
// to 1 KiB, can be sent as a bearer token.
func HashToken(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hashPrefix + hex.EncodeToString(sum[:])
}

var (
	validName    = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	validPattern = regexp.MustCompile(`^[A-Za-z0-9_.:*-]{1,128}$`)
	validSecret  = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)
)

// Validate reports why the token cannot be used, as a [*dueq.FieldError] of
// name, hash, scopes or queues, or nil. The reason never quotes the hash, which
// may be a secret put in the wrong place.
func (t Token) Validate() error {
	if !validName.MatchString(t.Name) {
		return refused("name", "is not 1 to 64 letters, digits and _ . -")
	}
	if _, err := t.sum(); err != nil {
		return err
	}
	if len(t.Scopes) == 0 {
		return refused("scopes", "are missing")
	}
	for _, s := range t.Scopes {
		if !slices.Contains(scopes, s) {
			return refused("scopes", fmt.Sprintf("have %q, which is not publish, consume, read or admin", s))
		}
	}
	for _, p := range t.Queues {
		if !validPattern.MatchString(p) {
			return refused("queues", fmt.Sprintf("have %q, which is not 1 to 128 letters, digits and _ . : - *", p))
		}
	}
	return nil
}

// sum returns the bytes of the hash.
func (t Token) sum() (sum [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(t.Hash, hashPrefix)
	if b, err := hex.DecodeString(digits); ok && err == nil && len(b) == len(sum) {
		sum = [sha256.Size]byte(b)
	} else {
		return sum, refused("hash", "is not sha256: and 64 hex digits")
	}
	if sum == sha256.Sum256(nil) {
		return sum, refused("hash", "is the one of an empty secret")
	}
	return sum, nil
}

func refused(field, reason string) error { return &dueq.FieldError{Field: field, Reason: reason} }

// gate decides which requests come in and who sent them.
type gate struct {
	tokens      []Token
	sums        [][sha256.Size]byte // of the tokens, in their order
	anyHost     bool
	crossOrigin *http.CrossOriginProtection
}

// newGate returns a gate for the tokens. Without tokens everybody may do
// everything, but only under a loopback Host, unless anyHost.
//
// Errors: ErrInvalid naming the field, such as tokens[1].hash.
func newGate(tokens []Token, anyHost bool) (*gate, error) {
	g := &gate{tokens: slices.Clone(tokens), anyHost: anyHost, crossOrigin: http.NewCrossOriginProtection()}
	for i, t := range tokens {
		if err := t.Validate(); err != nil {
			field := err.(*dueq.FieldError)
			return nil, refused(fmt.Sprintf("tokens[%d].%s", i, field.Field), field.Reason)
		}
		if slices.ContainsFunc(tokens[:i], func(o Token) bool { return o.Name == t.Name }) {
			return nil, refused(fmt.Sprintf("tokens[%d].name", i), fmt.Sprintf("%q is taken by another token", t.Name))
		}
		sum, _ := t.sum()
		if slices.Contains(g.sums, sum) {
			return nil, refused(fmt.Sprintf("tokens[%d].hash", i), "is the one of another token")
		}
		g.sums = append(g.sums, sum)
	}
	return g, nil
}

// caller is who sent a request. Without a token it may do everything.
type caller struct{ token *Token }

// identify returns who sent r, and tells the log. The token comes as
// Authorization: Bearer SECRET and in no other way (RFC 6750).
//
// Errors: a *Problem, unauthorized.
func (g *gate) identify(r *http.Request) (*caller, error) {
	if len(g.tokens) == 0 {
		return &caller{}, nil
	}
	secret, err := bearer(r)
	if err != nil {
		return nil, err
	}
	t := g.find(secret)
	if t == nil {
		return nil, unauthorized(invalidToken, "nobody has this token")
	}
	infoOf(r.Context()).token = t.Name
	return &caller{t}, nil
}

// find takes as long for every secret: all hashes are compared, each in
// constant time.
func (g *gate) find(secret string) *Token {
	sum, found := sha256.Sum256([]byte(secret)), -1
	for i := range g.sums {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(g.sums[i][:], sum[:]), i, found)
	}
	if found < 0 {
		return nil
	}
	return &g.tokens[found]
}

// What a challenge says about the token that was sent (RFC 6750).
const (
	noToken      = ""
	invalidToken = `, error="invalid_token"`
)

// bearer returns the secret that r carries. No reason quotes what was sent.
func bearer(r *http.Request) (string, error) {
	if r.URL.Query().Has("access_token") {
		return "", unauthorized(invalidToken, "a token in the address ends up in logs; send it as Authorization: Bearer")
	}
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return "", unauthorized(noToken, "send a token as Authorization: Bearer")
	}
	if len(values) > 1 {
		return "", unauthorized(invalidToken, "there are several Authorization headers")
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	secret = strings.TrimLeft(secret, " ")
	switch {
	case !strings.EqualFold(scheme, "Bearer"):
		return "", unauthorized(invalidToken, "the scheme of Authorization is not Bearer")
	case len(secret) > secretMax || !validSecret.MatchString(secret):
		return "", unauthorized(invalidToken, "the token is empty, longer than 1 KiB or has characters that tokens do not have")
	}
	return secret, nil
}

func unauthorized(reason, detail string) *Problem {
	p := kindUnauthorized.problem(detail)
	p.header.Set("WWW-Authenticate", `Bearer realm="dueq"`+reason)
	return p
}

// may returns nil if the caller may do what the scope allows, in the queue
// unless it is empty. The queue "*", which no queue is named, asks for all of
// them at once, for answers that cannot be cut down by sees.
//
// Errors: a *Problem, forbidden.
func (c *caller) may(scope Scope, queue string) error {
	if !c.has(scope) {
		return forbidden(fmt.Sprintf("the token lacks the scope %s", scope), fmt.Sprintf(`, scope="%s"`, scope))
	}
	if queue != "" && !c.sees(queue) {
		return forbidden(fmt.Sprintf("the token is not for queue %q", queue), "")
	}
	return nil
}

func (c *caller) has(scope Scope) bool {
	return c.token == nil || slices.Contains(c.token.Scopes, scope) || slices.Contains(c.token.Scopes, ScopeAdmin)
}

func forbidden(detail, scope string) *Problem {
	p := kindForbidden.problem(detail)
	p.header.Set("WWW-Authenticate", `Bearer realm="dueq", error="insufficient_scope"`+scope)
	return p
}

// sees reports that the caller's token is for the queue, whatever its scopes.
func (c *caller) sees(queue string) bool {
	if c.token == nil || len(c.token.Queues) == 0 {
		return true
	}
	return slices.ContainsFunc(c.token.Queues, func(pattern string) bool { return matches(pattern, queue) })
}

// matches leaves the work to path.Match: a valid pattern has none of its other
// special characters, and a valid queue no slash, which * would not match.
func matches(pattern, queue string) bool {
	ok, err := path.Match(pattern, queue)
	return ok && err == nil
}

// name returns the name of the token, empty without tokens.
func (c *caller) name() string {
	if c.token == nil {
		return ""
	}
	return c.token.Name
}
