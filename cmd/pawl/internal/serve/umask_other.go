//go:build !unix

package serve

// keepFilesPrivate does nothing where files have no modes.
func keepFilesPrivate() {}
