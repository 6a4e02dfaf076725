// Package archive keeps dead letters that are removed from their queue for good: JSON lines in files of mode 0600, synced before the
// task's rows are deleted, rotated by size, and removed when they are old or too many.
//
// Each file belongs to a namespace, and a namespace that adds much loses its own files first.
//
// It knows the form of a record, and reads files in any directory. It doesn't know when a task is archived, nor what becomes of one that is
// read.
package archive
