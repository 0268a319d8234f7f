// Command dueq is the command line of the delay queue. One file per
// subcommand; root.go has what they share.
package main

import (
	"context"
	"os"

	"github.com/dueq/dueq/internal/openstore"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // stderr has one line per error: ours
	a := &app{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
		getenv: os.Getenv, environ: os.Environ, open: openstore.Open, exit: os.Exit,
	}
	os.Exit(a.run(context.Background(), os.Args[1:]))
}
