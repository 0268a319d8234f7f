package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// trickRoutes has the routes that tricks are aimed at, each of which says where the
// router went: operation, queue and member. Who may not is refused, as the
// server does it: by the operation and its decoded queue.
func trickRoutes(g *gate, ran *atomic.Int64) http.Handler {
	mux := http.NewServeMux()
	for pattern, scope := range map[string]Scope{
		"POST /v1/queues/{queue}/tasks": ScopePublish, "POST /v1/queues/{queue}/tasks/change": ScopePublish, "POST /v1/queues/{queue}/pause": ScopeAdmin,
		"GET /v1/queues/{queue}/tasks/{member}": ScopeRead, "DELETE /v1/queues/{queue}/tasks/{member}": ScopePublish, "GET /v1/queues": ScopeRead,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			who, err := g.identify(r)
			if err == nil {
				err = who.may(scope, r.PathValue("queue"))
			}
			if err != nil {
				writeProblem(w, r, problemOf(err))
				return
			}
			ran.Add(1)
			fmt.Fprintf(w, "%s queue=%s member=%s", pattern, r.PathValue("queue"), r.PathValue("member"))
		})
	}
	return mux
}

// guarded serves the routes behind the gate.
func guarded(t *testing.T, g *gate) (addr string, ran *atomic.Int64) {
	t.Helper()
	ran = &atomic.Int64{}
	s := httptest.NewServer(record(slog.New(slog.DiscardHandler), g.protect(trickRoutes(g, ran))))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), ran
}

// sendRaw sends text as it is, which no client of net/http would, and returns the
// answer.
func sendRaw(t *testing.T, addr, text string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(text, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return resp, string(body)
}

var hostTable = map[string]bool{
	"localhost": true, "localhost:8080": true, "LOCALHOST": true, "LocalHost:1": true, "localhost.": true, "localhost.:80": true, "localhost:": true,
	"127.0.0.1": true, "127.0.0.1:65535": true, "127.1.2.3": true, "127.255.255.255:80": true,
	"[::1]": true, "[::1]:8080": true, "[0:0:0:0:0:0:0:1]": true, "[::ffff:127.0.0.1]": true, "[::FFFF:7f00:1]:80": true,

	"": false, ":80": false, ".": false, "evil.com": false, "localhost.evil.com": false, "127.0.0.1.evil.com": false, "evil.com:80": false,
	"localhost..": false, ".localhost": false, "sub.localhost": false, "localhostx": false, "xlocalhost": false, "127.0.0.1.": false,
	"127.0.0.1.nip.io": false, "2130706433": false, "0x7f000001": false, "0x7f.0.0.1": false, "0177.0.0.1": false, "127.1": false, "127.0.0.01": false, "127.0.0.256": false,
	"0.0.0.0": false, "128.0.0.1": false, "126.255.255.255": false, "10.0.0.1": false, "192.168.0.1:8080": false,
	"::1": false, "::1:80": false, "[::1": false, "::1]": false, "[::1]x": false, "[::1]80": false, "[::1]:8x": false, "[::1%25lo]": false, "[::1%lo]:80": false,
	"[::]": false, "[::2]": false, "[fe80::1]": false, "[::ffff:10.0.0.1]": false, "[::127.0.0.1]": false, "[localhost]": false, "[127.0.0.1]": false, "[]": false, "[]]": false, "[::1]]": false, "[[::1]]": false,
	"localhost:80:80": false, "localhost:x": false, "localhost:-1": false, "localhost:80@evil.com": false, "user@localhost": false, "evil.com@localhost": false, "evil.com:80@127.0.0.1": false,
	"localhost/": false, "localhost#x": false, "localhost,evil.com": false, "localhost evil.com": false, " localhost": false, "localhost\x00": false, "localhost\n": false, "ⅼocalhost": false, "loca\u017fhost": false, "①27.0.0.1": false,
}

func TestWithoutTokensOnlyLoopbackHostsAreServed(t *testing.T) {
	t.Parallel()
	open, withTokens := gateOf(t), gateOf(t, tokenOf("a", ScopeRead))
	anyHost, err := newGate(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range hostTable {
		if got := isLoopback(host); got != want {
			t.Errorf("%q is loopback: %t", host, got)
		}
		r := httptest.NewRequest("GET", "/v1/queues", nil)
		r.Host = host
		if p := open.refuse(r); (p == nil) != want || p != nil && (p.Status != 421 || p.Type != typePrefix+"wrong_host") {
			t.Errorf("%q without tokens: %+v", host, p)
		}
		if p := anyHost.refuse(r); p != nil {
			t.Errorf("%q is refused although any host is allowed: %v", host, p)
		}
		if p := withTokens.refuse(r); p != nil {
			t.Errorf("%q is refused although there are tokens: %v", host, p)
		}
	}
}

func TestReboundNamesReachNothing(t *testing.T) {
	t.Parallel()
	addr, ran := guarded(t, gateOf(t))
	for name, request := range map[string]string{
		"another name":           "GET /v1/queues HTTP/1.1\r\nHost: evil.com\r\n\r\n",
		"another name, POST":     "POST /v1/queues/a/tasks HTTP/1.1\r\nHost: evil.com\r\nContent-Length: 0\r\n\r\n",
		"in the target":          "GET http://evil.com/v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"forwarded":              "GET /v1/queues HTTP/1.1\r\nHost: evil.com\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\nX-Forwarded-For: 127.0.0.1\r\n\r\n",
		"none, as in HTTP/1.0":   "GET /v1/queues HTTP/1.0\r\n\r\n",
		"empty":                  "GET /v1/queues HTTP/1.1\r\nHost:\r\n\r\n",
		"origin and fetch agree": "POST /v1/queues/a/tasks HTTP/1.1\r\nHost: evil.com\r\nOrigin: http://evil.com\r\nSec-Fetch-Site: same-origin\r\nContent-Length: 0\r\n\r\n",
	} {
		if resp, body := sendRaw(t, addr, request); resp.StatusCode != 421 || resp.Header.Get("Content-Type") != problemJSON {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	for name, request := range map[string]string{
		"two":     "GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n",
		"missing": "GET /v1/queues HTTP/1.1\r\n\r\n",
	} {
		if resp, body := sendRaw(t, addr, request); resp.StatusCode != 400 {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
	if n := ran.Load(); n != 0 {
		t.Errorf("%d of them ran", n)
	}
	if resp, body := sendRaw(t, addr, "GET http://localhost/v1/queues HTTP/1.1\r\nHost: evil.com\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("what the target says counts: %d %s", resp.StatusCode, body)
	}
}

func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	t.Parallel()
	g := gateOf(t, tokenOf("a", ScopeAdmin))
	if err := g.trust("https://trusted.example"); err != nil {
		t.Fatal(err)
	}
	addr, ran := guarded(t, g)
	for name, tc := range map[string]struct {
		method, headers string
		want            int
	}{
		"form of another site":            {"POST", "Origin: http://evil\r\nContent-Type: text/plain\r\n", 403},
		"form, urlencoded":                {"POST", "Origin: http://evil\r\nContent-Type: application/x-www-form-urlencoded\r\n", 403},
		"JSON of another site":            {"POST", "Origin: http://evil\r\nContent-Type: application/json\r\nSec-Fetch-Site: cross-site\r\n", 403},
		"delete of another site":          {"DELETE", "Sec-Fetch-Site: cross-site\r\n", 403},
		"same site, another origin":       {"POST", "Sec-Fetch-Site: same-site\r\nOrigin: https://other.dueq.example\r\n", 403},
		"sandboxed page":                  {"POST", "Origin: null\r\n", 403},
		"another port":                    {"POST", "Origin: http://dueq.example:81\r\n", 403},
		"name that begins alike":          {"POST", "Origin: http://dueq.example.evil\r\n", 403},
		"trusted name, another scheme":    {"POST", "Origin: http://trusted.example\r\nSec-Fetch-Site: cross-site\r\n", 403},
		"lie about the method":            {"POST", "Origin: http://evil\r\nX-HTTP-Method-Override: GET\r\n", 403},
		"own page":                        {"POST", "Origin: http://dueq.example\r\nSec-Fetch-Site: same-origin\r\n", 200},
		"own page behind TLS":             {"POST", "Origin: https://dueq.example\r\nSec-Fetch-Site: same-origin\r\nX-Forwarded-Proto: https\r\n", 200},
		"own page behind TLS, old":        {"POST", "Origin: https://dueq.example\r\n", 200},
		"trusted page":                    {"POST", "Origin: https://trusted.example\r\n", 200},
		"trusted page, new browser":       {"POST", "Origin: https://trusted.example\r\nSec-Fetch-Site: cross-site\r\n", 200},
		"typed by the user":               {"POST", "Sec-Fetch-Site: none\r\n", 200},
		"no browser":                      {"POST", "", 200},
		"look from another site":          {"GET", "Origin: http://evil\r\nSec-Fetch-Site: cross-site\r\n", 200},
		"GET with an override of DELETE":  {"GET", "X-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\n", 200},
		"preflight of another site's PUT": {"OPTIONS", "Origin: http://evil\r\nAccess-Control-Request-Method: POST\r\n", 405},
	} {
		before := ran.Load()
		target := map[string]string{"POST": "/v1/queues/a/tasks", "OPTIONS": "/v1/queues/a/tasks"}[tc.method]
		if target == "" {
			target = "/v1/queues/a/tasks/m?_method=DELETE"
		}
		resp, body := sendRaw(t, addr, tc.method+" "+target+" HTTP/1.1\r\nHost: dueq.example\r\nAuthorization: Bearer a-secret\r\nContent-Length: 0\r\n"+tc.headers+"\r\n")
		if resp.StatusCode != tc.want || (ran.Load() != before) != (tc.want == 200) {
			t.Errorf("%s: %d %s, ran %t; want %d", name, resp.StatusCode, body, ran.Load() != before, tc.want)
		}
		if tc.want == 200 && !strings.HasPrefix(body, tc.method) {
			t.Errorf("%s: another method ran: %s", name, body)
		}
		if tc.want == 403 && !strings.Contains(body, typePrefix+"cross_origin") {
			t.Errorf("%s: %s", name, body)
		}
		if allowed := resp.Header.Get("Access-Control-Allow-Origin"); allowed != "" {
			t.Errorf("%s: answers may be read by %s", name, allowed)
		}
	}
}

func TestMethodIsTheOneOfTheRequestLine(t *testing.T) {
	t.Parallel()
	addr, ran := guarded(t, gateOf(t, tokenOf("a", ScopeRead)))
	for _, path := range []string{"/v1/queues/a/tasks", "/v1/queues/a/tasks/change", "/v1/queues/a/pause"} {
		for _, text := range []string{
			"GET " + path + "?_method=POST HTTP/1.1\r\nX-HTTP-Method-Override: POST\r\n",
			"GET " + path + " HTTP/1.1\r\nX-HTTP-Method: POST\r\nX-Method-Override: POST\r\n",
			"HEAD " + path + " HTTP/1.1\r\nX-HTTP-Method-Override: POST\r\n",
		} {
			// tasks/change is also where GET finds a task of that name
			resp, body := sendRaw(t, addr, strings.Replace(text, "\r\n", "\r\nHost: localhost\r\nAuthorization: Bearer a-secret\r\nConnection: close\r\n", 1)+"\r\n")
			if strings.Contains(body, "POST") || resp.StatusCode == 403 {
				t.Errorf("%q: %d %s", text, resp.StatusCode, body)
			}
		}
	}
	if n := ran.Load(); n != 3 {
		t.Errorf("%d ran, want the two GETs and the HEAD of a task named change", n)
	}
	resp, _ := sendRaw(t, addr, "POST /v1/queues/a/tasks?_method=GET HTTP/1.1\r\nHost: localhost\r\nX-HTTP-Method-Override: GET\r\nAuthorization: Bearer a-secret\r\nContent-Length: 11\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n_method=GET")
	if resp.StatusCode != 403 {
		t.Errorf("a reader's POST that calls itself GET: %d", resp.StatusCode)
	}
}

// pathTricks are paths that some server or proxy reads in another way. The caller's
// token is for the queue mine only. Where it went, or why not.
var pathTricks = map[string]string{
	"/v1/queues/mine/tasks":                  "POST /v1/queues/{queue}/tasks queue=mine member=",
	"/v1/queues/m%69ne/tasks":                "POST /v1/queues/{queue}/tasks queue=mine member=",
	"/v1/%71ueues/mine/t%61sks":              "POST /v1/queues/{queue}/tasks queue=mine member=",
	"/v1/queues/mine/tasks?/../other":        "POST /v1/queues/{queue}/tasks queue=mine member=",
	"/v1/queues/mine/tasks/change":           "POST /v1/queues/{queue}/tasks/change queue=mine member=",
	"/v1/queues/other/tasks":                 "forbidden",
	"/v1/queues/%6fther/tasks":               "forbidden",
	"/v1/queues/mine%2ftasks/tasks":          "forbidden",
	"/v1/queues/mine%2Fx/tasks":              "forbidden",
	"/v1/queues/MINE/tasks":                  "forbidden",
	"/v1/queues/mine%20/tasks":               "forbidden",
	"/v1/queues/mine;x=y/tasks":              "forbidden",
	"/v1/queues/mine%3f/tasks":               "forbidden",
	"/v1/queues/mine%23/tasks":               "forbidden",
	"/v1/queues/mine%252e/tasks":             "forbidden",
	"/v1/queues/*/tasks":                     "forbidden",
	"/v1/queues/mine,other/tasks":            "forbidden",
	"/v1/queues/mine/pause":                  "forbidden",
	"/v1//queues/mine/tasks":                 "invalid",
	"//v1/queues/mine/tasks":                 "invalid",
	"/v1/queues//tasks":                      "invalid",
	"/v1/queues/mine//tasks":                 "invalid",
	"/v1/queues/mine/tasks/":                 "invalid",
	"/v1/queues/mine/tasks%2f":               "invalid",
	"/v1/queues/mine/./tasks":                "invalid",
	"/v1/queues/mine/%2e/tasks":              "invalid",
	"/v1/queues/mine/../other/tasks":         "invalid",
	"/v1/queues/mine/%2e%2e/other/tasks":     "invalid",
	"/v1/queues/mine/%2E./other/tasks":       "invalid",
	"/v1/queues/../queues/other/tasks":       "invalid",
	"/v1/queues/mine/tasks/..":               "invalid",
	"/../v1/queues/mine/tasks":               "invalid",
	"/v1/queues/%2e%2e/tasks":                "invalid",
	"/v1/queues/./tasks":                     "invalid",
	"/v1/queues/%2f/tasks":                   "invalid",
	"/v1/queues/%2fmine/tasks":               "invalid",
	"/v1/queues/mine%2f/tasks":               "invalid",
	"/v1/queues/mine%2f..%2fother/tasks":     "invalid",
	"/v1/queues/mine%2f%2e%2e%2fother/tasks": "invalid",
	"/v1/queues/mine%00/tasks":               "invalid",
	"/v1/queues/mine%0a/tasks":               "invalid",
	"/v1/queues/mine%0d%0aX:%20y/tasks":      "invalid",
	"/v1/queues/mine%1b[2J/tasks":            "invalid",
	"/v1/queues/mine%7f/tasks":               "invalid",
	"/v1/queues/mine%c2%85/tasks":            "invalid",
	"/v1/queues/mine%ff/tasks":               "invalid",
	"/v1/queues/mine%c0%af/tasks":            "invalid",
	"/v1/queues/..%5c/tasks":                 "forbidden",
	"/v1/queues/mine/tasks%2fchange":         "no such path",
	"/v1/queues%2fmine/tasks":                "no such path",
	"/v1/queues/mine/tasks/change/x":         "no such path",
	"/V1/queues/mine/tasks":                  "no such path",
	"/":                                      "no such path",
	"/v1/queues/mine/tasks/m":                "other method",
	"/v1/queues/mine/tasks/a%2fb":            "other method",
	"*":                                      "invalid",
	"http://localhost":                       "invalid",
	"http://localhost//v1/queues/mine/tasks": "invalid",
	"http://localhost/v1/queues/mine/tasks":  "POST /v1/queues/{queue}/tasks queue=mine member=",
}

func TestPathThatIsAllowedIsThePathThatIsRouted(t *testing.T) {
	t.Parallel()
	token := tokenOf("a", ScopePublish)
	token.Queues = []string{"mine"}
	addr, ran := guarded(t, gateOf(t, token))
	for target, want := range pathTricks {
		before := ran.Load()
		resp, body := sendRaw(t, addr, "POST "+target+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a-secret\r\nContent-Length: 0\r\n\r\n")
		got := body
		switch resp.StatusCode {
		case 400, 403:
			got = want
			if !strings.Contains(body, typePrefix+want+`"`) {
				got = body
			}
		case 404:
			got = "no such path"
		case 405:
			got = "other method"
		}
		if got != want || ran.Load()-before > 1 || (ran.Load() != before) != (resp.StatusCode == 200) {
			t.Errorf("%s: %d %s; want %s", target, resp.StatusCode, body, want)
		}
		if location := resp.Header.Get("Location"); location != "" {
			t.Errorf("%s: redirected to %s", target, location)
		}
	}
}

func TestMembersKeepTheirSpellingInPaths(t *testing.T) {
	t.Parallel()
	addr, _ := guarded(t, gateOf(t))
	for escaped, member := range map[string]string{
		"a%2Fb": "a/b", "a%252Fb": "a%2Fb", "a:b": "a:b", "%E2%82%AC": "€", "a%23b": "a#b", "a%3Fb": "a?b", "...": "...", ".a": ".a", "a+b": "a+b", "a;b": "a;b", "a%5Cb": `a\b`, "%252e%252e": "%2e%2e",
	} {
		resp, body := sendRaw(t, addr, "DELETE /v1/queues/q/tasks/"+escaped+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if want := "DELETE /v1/queues/{queue}/tasks/{member} queue=q member=" + member; resp.StatusCode != 200 || body != want {
			t.Errorf("%s: %d %s, want %s", escaped, resp.StatusCode, body, want)
		}
	}
}

func TestEveryAnswerHasTheHeadersThatProtect(t *testing.T) {
	t.Parallel()
	addr, _ := guarded(t, gateOf(t, tokenOf("a", ScopeRead)))
	for want, request := range map[int]string{
		200: "GET /v1/queues HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a-secret\r\n\r\n",
		400: "GET //v1 HTTP/1.1\r\nHost: x\r\n\r\n",
		401: "GET /v1/queues HTTP/1.1\r\nHost: x\r\n\r\n",
		403: "POST /v1/queues/q/tasks HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\nContent-Length: 0\r\n\r\n",
		404: "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
		405: "DELETE /v1/queues HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		resp, body := sendRaw(t, addr, request)
		if resp.StatusCode != want {
			t.Errorf("%q: %d %s", request, resp.StatusCode, body)
		}
		for name, value := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := resp.Header.Values(name); len(got) != 1 || got[0] != value {
				t.Errorf("%d: %s is %q", want, name, got)
			}
		}
		if resp.Header.Get(requestIDHeader) == "" {
			t.Errorf("%d: no request id", want)
		}
	}
}

func TestOriginsThatAreNoneAreNotTrusted(t *testing.T) {
	t.Parallel()
	g := gateOf(t)
	for _, origin := range []string{"", "dueq.example", "https://", "https://dueq.example/", "https://dueq.example/path", "https://dueq.example?x", "null", "*"} {
		wantRefusedField(t, origin, g.trust(origin), "trusted_origins")
	}
}

func FuzzHost(f *testing.F) {
	for host := range hostTable {
		f.Add(host)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !isLoopback(host) {
			return
		}
		u, err := url.Parse("http://" + host + "/")
		if err != nil || u.Host != host || u.User != nil || u.Path != "/" {
			t.Fatalf("%q is loopback, but as an address it is %v, %v", host, u, err)
		}
		name := strings.ToLower(u.Hostname())
		if addr, err := netip.ParseAddr(name); err == nil && addr.Unmap().IsLoopback() {
			return
		}
		if name != "localhost" && name != "localhost." {
			t.Fatalf("%q is loopback, but names %q", host, name)
		}
	})
}

func FuzzPath(f *testing.F) {
	for target := range pathTricks {
		f.Add(target)
	}
	token := tokenOf("a", ScopePublish)
	token.Queues = []string{"mine"}
	g := gateOf(f, token)
	ran := &atomic.Int64{}
	handler := g.protect(trickRoutes(g, ran))
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := &http.Request{Method: "POST", URL: u, Host: "localhost", Header: http.Header{"Authorization": {"Bearer a-secret"}}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
		before, w := ran.Load(), httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 300 && w.Code < 400 {
			t.Fatalf("%q: redirected to %q", target, w.Header().Get("Location"))
		}
		if ran.Load() != before && (!strings.Contains(w.Body.String(), " queue=mine ") || path.Clean(u.Path) != u.Path) {
			t.Fatalf("%q: %s", target, w.Body)
		}
	})
}
