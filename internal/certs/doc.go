// Package certs makes the certificates by which the nodes of a cluster recognize each other: the cluster's own authority, and for
// each node a certificate with its name in a URI, pawl://node/NAME, that serves both ends of a connection. It also makes the
// certificates that servers present to their clients, and reloads certificate files when they change, and tells when they expire.
//
// It knows neither nodes nor connections: others decide who checks a certificate, and how.
package certs
