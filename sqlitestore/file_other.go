//go:build !linux

package sqlitestore

// refuseNetwork knows no network file systems here.
func refuseNetwork(string) error { return nil }

// hasRoom does not know here: a write has to tell.
func hasRoom(string, uint64) bool { return true }
