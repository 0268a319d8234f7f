package main

import (
	"fmt"
	"os"
	"strings"
)

// insert puts text between the markers of a name in a document:
//
//	<!-- bench:name --> … <!-- /bench:name -->
func insert(document, name, text string) (string, error) {
	begin, end := "<!-- bench:"+name+" -->", "<!-- /bench:"+name+" -->"
	before, rest, ok := strings.Cut(document, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the markers %s and %s are missing", begin, end)
	}
	return before + begin + "\n" + strings.TrimSpace(text) + "\n" + end + after, nil
}

// updateDocs rewrites the part of a file that a report fills.
func updateDocs(file, name string, r *Report) error {
	document, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var page strings.Builder
	r.Markdown(&page)
	text, err := insert(string(document), name, page.String())
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
