package openstore

import (
	"errors"
	"path/filepath"
)

// Default returns the URL of the store that is used when none is named: a file
// in the user's data directory, so that two terminals meet without a server.
// goos is runtime.GOOS.
func Default(getenv func(name string) string, goos string) (string, error) {
	dir, err := dataDir(getenv, goos)
	if err != nil {
		return "", err
	}
	return "sqlite:" + filepath.Join(dir, "dueq", "dueq.db"), nil
}

func dataDir(getenv func(name string) string, goos string) (string, error) {
	if goos == "windows" {
		if dir := getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return "", errors.New("%LocalAppData% is not set")
	}
	if dir := getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return dir, nil
	}
	home := getenv("HOME")
	switch {
	case home == "":
		return "", errors.New("$HOME is not set")
	case goos == "darwin":
		return filepath.Join(home, "Library", "Application Support"), nil
	}
	return filepath.Join(home, ".local", "share"), nil
}
