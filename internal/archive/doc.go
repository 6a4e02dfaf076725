// Package archive keeps dead letters that are removed from their queue for good: JSON lines in files of mode 0600, synced before the
// task's rows are deleted, rotated by size, and removed when they are old or too many.
//
// It knows files and lines, not tasks: a record is whatever JSON its caller passes.
package archive
