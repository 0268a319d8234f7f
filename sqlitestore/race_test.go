//go:build race

package sqlitestore_test

// raced: SQLite runs some ten times slower, so times say nothing.
const raced = true
