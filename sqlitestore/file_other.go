//go:build !linux

package sqlitestore

// refuseNetwork knows no network file systems here.
func refuseNetwork(string) error { return nil }
