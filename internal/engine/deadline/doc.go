// Package deadline is the rows that say when something is due: those that tasks or keys share, and how far a leader has
// come in them. It does not know what happens when they are due.
package deadline
