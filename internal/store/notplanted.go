//go:build !planted

package store

// planted reports whether a bug is planted, to prove that the tests find it: never, except in builds with the tag.
func planted(string) bool { return false }
