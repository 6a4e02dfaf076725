//go:build !race

package outbox_test

// "sqlite". Compiling it with the race detector would take 30 s, and the outbox runs the same code for every database.
import _ "modernc.org/sqlite"
