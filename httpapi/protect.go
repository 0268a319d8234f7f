package httpapi

import (
	"net/http"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
)

// trust lets web pages of the origin, such as https://dueq.example.com, send
// requests that change something. It is for a page behind a proxy that does not
// pass the Host on, in browsers without Sec-Fetch-Site.
//
// Errors: ErrInvalid naming trusted_origins. Not while requests are served.
func (g *gate) trust(origin string) error {
	if err := g.crossOrigin.AddTrustedOrigin(origin); err != nil {
		return refused("trusted_origins", "have one that is not scheme://host[:port]")
	}
	return nil
}

// protect refuses what comes from a browser against its user's will, and paths
// that a proxy could read in another way than the router; it sets the headers
// of every answer. The method is the one of the request line, whatever
// X-HTTP-Method-Override and _method say. It does not look at tokens: what a
// request may do is decided from the operation it is routed to and its decoded
// parameters.
func (g *gate) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSafeHeaders(w.Header())
		if p := g.refuse(r); p != nil {
			writeProblem(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// setSafeHeaders sets the strictest; a handler of pages or files sets its own
// instead.
func setSafeHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

func (g *gate) refuse(r *http.Request) *Problem {
	if len(g.tokens) == 0 && !g.anyHost && !isLoopback(r.Host) {
		return kindWrongHost.problem("without tokens only localhost and loopback addresses are served")
	}
	if reason := badPath(r.URL.Path); reason != "" {
		return kindInvalid.problem("path "+reason, FieldProblem{Field: "path", Reason: reason})
	}
	if g.crossOrigin.Check(r) != nil {
		return kindCrossOrigin.problem("web pages of other origins may not change anything")
	}
	return nil
}

// isLoopback reports that a Host header names this machine, in a way that no
// name server decides: a page whose name was rebound to 127.0.0.1 still sends
// its own name.
func isLoopback(host string) bool {
	name, ok := cutPort(host)
	if !ok {
		return false
	}
	if strings.HasPrefix(name, "[") {
		addr, err := netip.ParseAddr(name[1 : len(name)-1])
		return err == nil && addr.Is6() && addr.Zone() == "" && addr.IsLoopback()
	}
	if strings.EqualFold(strings.TrimSuffix(name, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name) // of IPv4, since there is no colon
	return err == nil && addr.IsLoopback()
}

// cutPort returns host without :port; the port is digits only, or nothing.
// An address of IPv6 keeps its brackets and has both.
func cutPort(host string) (name string, ok bool) {
	end := strings.IndexByte(host, ':')
	if strings.HasPrefix(host, "[") {
		end = strings.IndexByte(host, ']') + 1
		if end == 0 {
			return "", false
		}
	}
	if end < 0 {
		return host, true
	}
	port := strings.TrimPrefix(host[end:], ":")
	isPort := (host[end:] == "" || host[end] == ':') && strings.Trim(port, "0123456789") == ""
	return host[:end], isPort
}

// badPath says why a decoded path is refused, or nothing. There is nothing to
// clean in a path that is not refused: no empty part, no . or .., no trailing
// slash, be they written plainly or as %2e and %2f. So a proxy that cleans paths
// cannot make another route of it, and the router never redirects. A member may
// have single slashes, as %2F.
func badPath(path string) string {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return "does not begin with a slash"
	}
	if !utf8.ValidString(path) || strings.ContainsFunc(path, unicode.IsControl) {
		return "has a control character or is not valid UTF-8"
	}
	if rest == "" {
		return ""
	}
	for part := range strings.SplitSeq(rest, "/") {
		if part == "" || part == "." || part == ".." {
			return "has an empty part, . or .., or ends with a slash"
		}
	}
	return ""
}
