// Package version holds the version of this release, for the server, the command and the SDK. It knows nothing else.
package version

// Version is the version of this release.
const Version = "0.1.0"
