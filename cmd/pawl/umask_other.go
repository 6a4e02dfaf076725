//go:build !unix

package main

// keepFilesPrivate does nothing where files have no modes.
func keepFilesPrivate() {}
