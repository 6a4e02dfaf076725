//go:build !planted

package store

// planted says whether a bug is planted, to prove that the tests find it: never, outside builds with the tag.
func planted(string) bool { return false }
