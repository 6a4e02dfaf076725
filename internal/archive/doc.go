// Package archive keeps dead letters that are removed from their queue for good: JSON lines in files of mode 0600, synced before the
// task's rows are deleted, rotated by size, and removed when they are old or too many.
//
// Each file belongs to a namespace. A list reads the files of one namespace from their ends, in blocks, and no more than a bound, so that
// it costs as much as it returns; and a namespace that adds much loses its own files first.
//
// It knows files, lines and the names of namespaces, not tasks: a record is whatever JSON its caller passes.
package archive
