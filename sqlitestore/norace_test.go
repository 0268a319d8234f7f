//go:build !race

package sqlitestore_test

const raced = false
