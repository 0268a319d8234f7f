// Command mutate breaks each rule of docs/design.md on purpose, one at a time
// in a copy of the tree, and expects a test to fail. What to break and which
// tests should see it is in mutations.txt:
//
//	rule 7: settle ignores the delivery number
//	redisstore/lua/settle.lua ./redisstore TestStore/lease$
//	-old text, which the file must have exactly once
//	+new text, or no such line to leave the old text out
//
// Several lines of - or + are one text, a - after a + begins another one. After
// the pattern of -run there may be more arguments for go test.
//
// The status is 1 if a mutation survives, or cannot be applied, compiled or run.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed mutations.txt
var table string

// mutation is one entry of the table.
type mutation struct {
	title string // rule and name
	file  string
	args  []string    // of go test: the package, then what follows -run
	edits [][2]string // old and new text
}

func main() {
	only := flag.String("run", "", "regular expression that chooses mutations by rule, name or file")
	verbose := flag.Bool("v", false, "show what the tests print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	bad, err := run(ctx, *only, *verbose)
	stop()
	if err != nil {
		log.Fatal("mutate: ", err)
	}
	os.Exit(min(bad, 1))
}

// run tries the chosen mutations and returns how many were not caught.
func run(ctx context.Context, only string, verbose bool) (bad int, err error) {
	chosen, err := regexp.Compile(only)
	all, parsed := parse(table)
	if err = cmp.Or(err, parsed); err != nil {
		return 0, err
	}
	dir, err := copyTree(ctx)
	defer os.RemoveAll(dir)
	if err != nil {
		return 0, err
	}
	tried, sound := 0, map[string]string{} // sound is what the tests of a pattern say of the tree as it is
	for _, m := range all {
		if !chosen.MatchString(m.title + " " + m.file) {
			continue
		}
		verdict, output := m.try(ctx, dir, sound)
		if ctx.Err() != nil {
			return bad, errors.New("interrupted")
		}
		tried++
		if !strings.HasPrefix(verdict, "caught") {
			bad++
		}
		fmt.Printf("%-72s %s\n", m.title, verdict)
		if verbose {
			fmt.Println(output)
		}
	}
	fmt.Printf("%d mutations, %d not caught\n", tried, bad)
	return bad, nil
}

// parse reads the table.
func parse(text string) (all []*mutation, err error) {
	m, last := &mutation{}, byte(0) // last is what the line before began with
	for n, line := range strings.Split(text, "\n") {
		begin, words := (line + " ")[0], strings.Fields(line)
		switch at := len(m.edits) - 1; {
		case len(words) == 0 || begin == '#':
		case words[0] == "rule":
			m = &mutation{title: line}
			all = append(all, m)
		case begin == '-' && last != '-':
			m.edits = append(m.edits, [2]string{line[1:]})
		case begin == '-':
			m.edits[at][0] += "\n" + line[1:]
		case begin == '+' && last == '-':
			m.edits[at][1] = line[1:]
		case begin == '+' && last == '+':
			m.edits[at][1] += "\n" + line[1:]
		case m.file == "" && len(words) >= 3:
			m.file, m.args = words[0], words[1:]
		default:
			return nil, fmt.Errorf("mutations.txt:%d: %q makes no sense here", n+1, line)
		}
		last = begin
	}
	return all, nil
}

// copyTree copies what git knows and what it would add to a directory of its own.
func copyTree(ctx context.Context) (dir string, err error) {
	git := func(args ...string) string {
		out, failure := exec.CommandContext(ctx, "git", args...).Output()
		err = cmp.Or(err, failure)
		return strings.Trim(string(out), "\n\x00")
	}
	root := git("rev-parse", "--show-toplevel")
	names := git("-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if err != nil {
		return "", fmt.Errorf("git: %w", err)
	}
	if dir, err = os.MkdirTemp("", "mutate-"); err != nil {
		return "", err
	}
	for _, name := range strings.Split(names, "\x00") {
		data, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, not committed
		}
		to := filepath.Join(dir, name)
		if err = cmp.Or(err, os.MkdirAll(filepath.Dir(to), 0o700), os.WriteFile(to, data, 0o700)); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// try applies the mutation, runs its tests and takes it back.
func (m *mutation) try(ctx context.Context, dir string, sound map[string]string) (verdict, output string) {
	key := strings.Join(m.args, " ")
	if _, ok := sound[key]; !ok {
		sound[key], output = test(ctx, dir, m.args)
	}
	if sound[key] != "SURVIVES" {
		return "INVALID: without it: " + sound[key], output
	}
	path := filepath.Join(dir, filepath.FromSlash(m.file))
	was, err := os.ReadFile(path)
	text := string(was)
	for _, e := range m.edits {
		if n := strings.Count(text, e[0]); err == nil && n != 1 {
			err = fmt.Errorf("%s has the old text %d times: %q", m.file, n, e[0])
		}
		text = strings.Replace(text, e[0], e[1], 1)
	}
	if err = cmp.Or(err, os.WriteFile(path, []byte(text), 0o700)); err != nil {
		return "INVALID: " + err.Error(), ""
	}
	defer os.WriteFile(path, was, 0o700)
	return test(ctx, dir, m.args)
}

var (
	failed  = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	stopped = regexp.MustCompile(`(?m)^panic: .*$`)
	broken  = regexp.MustCompile(`\[(build|setup) failed\]|no tests to run|Error compiling script|user_script:\d+: (attempt to|Script attempted)[^\n]*`)
)

// test says what the tests make of the tree, and returns what they print.
func test(ctx context.Context, dir string, args []string) (string, string) {
	flags := []string{"test", "-count=1", "-vet=off", "-failfast", "-timeout=1m", "-run", args[1], args[0]}
	cmd := exec.CommandContext(ctx, "go", append(flags, args[2:]...)...)
	cmd.Dir = dir
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	output, name := string(out), ""
	for _, match := range failed.FindAllStringSubmatch(output, -1) {
		if strings.HasPrefix(match[1], name) { // a subtest of the one before
			name = match[1]
		}
	}
	switch why := broken.FindString(output); {
	case why != "":
		return "INVALID: " + why, output
	case err == nil:
		return "SURVIVES", output
	case name == "":
		return "caught by " + cmp.Or(stopped.FindString(output), err.Error()), output
	}
	return "caught by " + name, output
}
