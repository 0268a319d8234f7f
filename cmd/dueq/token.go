package main

import (
	"fmt"
	"slices"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/config"
	"github.com/spf13/cobra"
)

const tokenHelp = `Make a token for dueq serve: a secret for who calls, and the lines of the
configuration with its hash. The secret is kept nowhere and not shown again.

Scopes, of which none includes another but admin all:
  publish  schedule, reschedule and cancel tasks
  consume  claim, settle and extend
  read     look at tasks, counts, settings and metrics
  admin    change settings, pause, requeue and delete`

func (a *app) token() *cobra.Command {
	var scopes, queues []string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for dueq serve",
		Long:  tokenHelp,
		Example: `  dueq token shop --scope publish,consume --queue 'order:*'
  dueq token ops --scope admin`,
		Args: exactly("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			t := config.Token{Name: args[0], Scopes: scopes, Queues: queues}
			if err := checkToken(t); err != nil {
				return err
			}
			var secret string
			secret, t.Hash = httpapi.NewToken()
			return a.printToken(secret, t)
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "what it may do, `SCOPES` with commas: publish, consume, read, admin")
	cmd.Flags().StringSliceVar(&queues, "queue", nil, "`PATTERN` of queues it is for, where * is any text; may be repeated (default all)")
	_ = cmd.MarkFlagRequired("scope")
	completeWords(cmd, "scope", config.Scopes...)
	return cmd
}

func checkToken(t config.Token) error {
	if !config.IsTokenName(t.Name) {
		return &dueq.FieldError{Field: "name", Reason: fmt.Sprintf("%q is not 1 to 64 letters, digits and . _ -", t.Name)}
	}
	if len(t.Scopes) == 0 {
		return &dueq.FieldError{Field: "scope", Reason: "is empty"}
	}
	for i, scope := range t.Scopes {
		if _, err := oneOf("scope", config.Scopes...)(scope); err != nil {
			return err
		}
		if slices.Contains(t.Scopes[:i], scope) {
			return &dueq.FieldError{Field: "scope", Reason: fmt.Sprintf("%q is given twice", scope)}
		}
	}
	for _, pattern := range t.Queues {
		if err := config.CheckPattern(pattern); err != nil {
			return &dueq.FieldError{Field: "queue", Reason: err.Error()}
		}
	}
	return nil
}

type tokenView struct {
	Name   string   `json:"name"`
	Secret string   `json:"secret"`
	Hash   string   `json:"hash"`
	Scopes []string `json:"scopes"`
	Queues []string `json:"queues"` // none: all
}

func (a *app) printToken(secret string, t config.Token) error {
	if a.format == "json" {
		return a.print(tokenView{t.Name, secret, t.Hash, t.Scopes, append([]string{}, t.Queues...)}, nil)
	}
	lines, err := t.Lines()
	if err != nil {
		return err
	}
	a.say("the secret, which is not shown again, and what to add to the file of dueq serve --config:")
	_, err = fmt.Fprintf(a.stdout, "%s\n\n%s", secret, lines)
	return err
}
