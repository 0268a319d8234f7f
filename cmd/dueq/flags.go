package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dueq/dueq"
	"github.com/spf13/cobra"
)

// value is a flag of any type that is checked while the command line is read.
type value[T any] struct {
	to    *T
	text  string
	kind  string // as the help shows it
	parse func(string) (T, error)
}

// newValue returns a flag that starts with the default text; empty leaves the
// zero value.
func newValue[T any](to *T, text, kind string, parse func(string) (T, error)) *value[T] {
	v := &value[T]{to: to, kind: kind, parse: parse}
	if text != "" {
		if err := v.Set(text); err != nil {
			panic(fmt.Sprintf("dueq: bad default of a flag: %v", err))
		}
	}
	return v
}

func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.to, v.text = parsed, text
	return nil
}

func (v *value[T]) String() string { return v.text }
func (v *value[T]) Type() string   { return v.kind }

func oneOf(field string, words ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if !slices.Contains(words, s) {
			return "", &dueq.FieldError{Field: field, Reason: fmt.Sprintf("%q is not one of %s", s, strings.Join(words, ", "))}
		}
		return s, nil
	}
}

func between(field string, low, high int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return 0, &dueq.FieldError{Field: field, Reason: fmt.Sprintf("%q is not a whole number from %d to %d", s, low, high)}
		}
		return n, nil
	}
}

func positive(field string) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := dueq.ParseDuration(s)
		if err == nil && d <= 0 {
			err = &dueq.FieldError{Field: field, Reason: fmt.Sprintf("%q is not more than zero", s)}
		}
		return d, err
	}
}

func notNegative(field string) func(string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		d, err := dueq.ParseDuration(s)
		if err == nil && d < 0 {
			err = &dueq.FieldError{Field: field, Reason: fmt.Sprintf("%q is negative", s)}
		}
		return d, err
	}
}

func parsePrefix(s string) (string, error) {
	if s == "" {
		return "", &dueq.FieldError{Field: "prefix", Reason: "is empty"}
	}
	return s, nil
}

var ifExistsWords = []string{"replace", "keep", "earlier", "later"}

// whenFlags adds --in and --at, of which one must be given, and returns where
// they leave their answer.
func whenFlags(cmd *cobra.Command) *dueq.When {
	when := addWhen(cmd)
	cmd.MarkFlagsOneRequired("in", "at")
	return when
}

// addWhen adds --in and --at, of which one may be given.
func addWhen(cmd *cobra.Command) *dueq.When {
	when := new(dueq.When)
	cmd.Flags().Var(newValue(when, "", "DURATION", parseIn), "in", "due after this long, by the store's clock: 30m, 7d, 0s is now")
	cmd.Flags().Var(newValue(when, "", "TIME", dueq.ParseWhen), "at", "due at this time: 2026-12-01T08:00:00Z or Unix milliseconds")
	cmd.MarkFlagsMutuallyExclusive("in", "at")
	return when
}

func parseIn(s string) (dueq.When, error) {
	d, err := dueq.ParseDuration(s)
	if err != nil {
		return dueq.When{}, err
	}
	return dueq.In(d), dueq.In(d).Validate()
}

// exactly takes the named arguments and no others.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		return atLeast(names...)(cmd, args)
	}
}

// atLeast takes the named arguments and any more of the last kind. One called
// QUEUE must be the name of a queue, and none may be empty.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return fmt.Errorf("%s is missing", names[len(args)])
		}
		for i, arg := range args {
			name := names[min(i, len(names)-1)]
			if err := checkArg(name, arg); err != nil {
				return err
			}
		}
		return nil
	}
}

func checkArg(name, arg string) error {
	switch {
	case arg == "":
		return fmt.Errorf("%s is empty", name)
	case name == "QUEUE":
		return dueq.ValidateQueue(arg)
	}
	return nil
}
