package dueq_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What docs/faults.md promises is shown by tests that exist.
func TestFaultsInTheDocsNameTestsThatExist(t *testing.T) {
	doc, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	code := goSource(t)
	names := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(doc), -1)
	for _, name := range names {
		if !strings.Contains(code, "func "+name[1]+"(") {
			t.Errorf("there is no %s", name[1])
		}
	}
	sentences := regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(string(doc), -1)
	for _, sentence := range sentences {
		if sentence[1] != "lease lost" && !strings.Contains(code, `"`+sentence[1]) {
			t.Errorf("no test is called %q", sentence[1])
		}
	}
	if len(names) < 50 || len(sentences) < 20 {
		t.Errorf("found only %d names and %d sentences", len(names), len(sentences))
	}
}

// goSource is the text of all Go files.
func goSource(t *testing.T) string {
	var b strings.Builder
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		b.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
