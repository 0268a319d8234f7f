package redistest

import (
	"slices"
	"strings"
	"time"
)

// Fault decides what becomes of a command, given its name as the client spelled
// it and its arguments. A Proxy asks for one command at a time.
type Fault func(cmd []string) Action

// Action is what a Proxy does with a command; the zero value is Pass. Commands
// before it on the connection are answered first. After an action that ends or
// silences the connection, commands behind it are not forwarded.
type Action struct {
	hold  bool   // the server does not get the command
	reply string // what the client gets if the command is held
	end   ending
	late  [2]time.Duration
}

// ending is what happens to a connection instead of a reply.
type ending int

const (
	none ending = iota
	closed
	silent
)

var (
	// Pass forwards the command and delivers the reply.
	Pass = Action{}
	// CutBefore closes the connection; the server never gets the command.
	CutBefore = Action{hold: true, end: closed}
	// CutAfter forwards the command and closes the connection when the whole
	// reply has come: the command happened, its reply is lost.
	CutAfter = Action{end: closed}
	// MuteBefore drops the command and silences the connection: it stays open
	// and nothing passes any more, either way.
	MuteBefore = Action{hold: true, end: silent}
	// MuteAfter forwards the command and silences the connection when the whole
	// reply has come.
	MuteAfter = Action{end: silent}
)

// Answer replies with a line of the protocol, such as "-LOADING Redis is
// loading" or "+OK"; the server never gets the command.
func Answer(line string) Action {
	return Action{hold: true, reply: line + "\r\n"}
}

// Late forwards the command and delivers its reply later by the given times,
// beyond SetDelay's. What is behind them on the connection waits.
func Late(request, reply time.Duration) Action {
	return Action{late: [2]time.Duration{request, reply}}
}

// Next applies the action to the next n commands that have one of the names,
// in any case, or to the next n of all if no name is given.
func Next(n int, action Action, names ...string) Fault {
	return func(cmd []string) Action {
		if n <= 0 || !named(cmd, names) {
			return Pass
		}
		n--
		return action
	}
}

func named(cmd, names []string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		return strings.EqualFold(name, cmd[0])
	})
}
