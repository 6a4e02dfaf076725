// Package version holds the version of this release, for the server, the command and the SDK alike. It knows nothing else.
package version

// Version of the release.
const Version = "0.1.0"
