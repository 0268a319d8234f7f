package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main(map[string]Role{
		"echo": func(ctx context.Context, args []string) error {
			fmt.Println(strings.Join(args, "|"))
			fmt.Print("half a line")
			<-ctx.Done()
			return nil
		},
		"fail": func(ctx context.Context, _ []string) error {
			<-ctx.Done()
			return errors.New("on purpose")
		},
		"count": func(ctx context.Context, _ []string) error {
			for i := 0; ctx.Err() == nil; i++ {
				fmt.Println(i)
			}
			return nil
		},
	})
	os.Exit(m.Run())
}

func awaitLine(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line := <-lines:
		return line
	case <-time.After(patience):
		t.Fatal("the child says nothing")
		return ""
	}
}

func TestStart_gives_arguments_and_whole_lines(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 10)
	p := Start(t, func(text []byte) { lines <- string(text) }, "echo", "a b", "c\nd")
	if got := awaitLine(t, lines) + awaitLine(t, lines); got != "a b|cd" {
		t.Errorf("got %q, want a b|c and d", got)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if len(lines) > 0 {
		t.Errorf("got %q, want no half a line", <-lines)
	}
}

func TestStop_tells_how_the_child_ended(t *testing.T) {
	t.Parallel()
	if err := Start(t, func([]byte) {}, "fail").Stop(); err == nil {
		t.Error("got no error of a role that failed")
	}
}

func TestFreeze_and_kill(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 1)
	p := Start(t, func(text []byte) { lines <- string(text) }, "count")
	awaitLine(t, lines)
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	for frozen := false; !frozen; { // what is in the pipe ends
		select {
		case <-lines:
		case <-time.After(300 * time.Millisecond):
			frozen = true
		}
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	awaitLine(t, lines)
	go func() {
		for range lines {
		}
	}()
	p.Kill()
	p.Kill()
	close(lines)
	if err := p.Thaw(); err == nil {
		t.Error("a killed child takes signals")
	}
}
