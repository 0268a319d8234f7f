package config

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dueq/dueq/internal/openstore"
)

// hidden stands for a secret where a Config is shown. No secret may contain it.
const hidden = "***"

// readSecrets takes secrets from the files that are named, and warns of files
// with secrets that everybody on the machine may read.
func (l *loader) readSecrets(cfg *Config, file string) {
	inFile := openstore.Redacted(cfg.Store) != cfg.Store && l.origin("store").source == file
	for i := range cfg.Push.Secrets {
		s := &cfg.Push.Secrets[i]
		path := fmt.Sprintf("push.secrets[%d]", i)
		if s.SecretsFile == "" {
			inFile = inFile || l.origin(path).source == file
			continue
		}
		if len(s.Secrets) > 0 {
			l.refuse(path+".secrets", "are given, and secrets_file too")
			continue
		}
		s.Secrets = l.secretsIn(path+".secrets_file", beside(file, s.SecretsFile))
	}
	if inFile && file != "" {
		l.warnReadable(file)
	}
}

// beside returns a path that is relative to the configuration's file.
func beside(file, path string) string {
	if file == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(file), path)
}

// secretsIn reads secrets, one a line; empty lines and those with # are none.
func (l *loader) secretsIn(key, path string) []string {
	text, err := readFile(path)
	if err != nil {
		l.refuse(key, "%s cannot be read: %v", path, err)
		return nil
	}
	l.warnReadable(path)
	var secrets []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			secrets = append(secrets, line)
		}
	}
	if len(secrets) == 0 {
		l.refuse(key, "%s has no secret", path)
	}
	return secrets
}

func (l *loader) warnReadable(path string) {
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o004 != 0 && runtime.GOOS != "windows" {
		l.warn("%s has secrets and everybody on this machine may read it: chmod o-r", path)
	}
}

// checkSecret tells what is wrong with a secret of push, without showing it.
func checkSecret(s string) error {
	text, ok := strings.CutPrefix(s, "whsec_")
	if !ok {
		return fmt.Errorf("does not begin with whsec_")
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) < 24 || len(raw) > 64 {
		return fmt.Errorf("is not whsec_ and 24 to 64 bytes in base64, such as: echo whsec_$(openssl rand -base64 32)")
	}
	return nil
}
