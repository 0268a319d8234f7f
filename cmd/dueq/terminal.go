package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// isTerminal tells whether a stream of the app is a terminal.
func (a *app) isTerminal(stream any) bool {
	if a.terminal != nil {
		return a.terminal(stream)
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// progressEvery is how often a line tells of progress where there is no
// terminal to draw on.
const progressEvery = 5 * time.Second

// clearScreen moves to the top left and clears what is below.
const clearScreen = "\x1b[H\x1b[J"

// clearLine moves to the start of the line and clears it.
const clearLine = "\r\x1b[K"

// confirm asks on a terminal. Anything but yes is no.
func (a *app) confirm(question string) bool {
	fmt.Fprint(a.stderr, escape(question)+" [y/N] ")
	answer, err := bufio.NewReader(a.stdin).ReadString('\n')
	if err != nil { // the end of the input, without a line break of its own
		fmt.Fprintln(a.stderr)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}
