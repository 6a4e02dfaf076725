// Package certs makes the certificates by which the nodes of a cluster know each other: an authority of the cluster's own,
// and for each node one with its name in a URI, pawl://node/NAME, that serves both ends of a connection. It makes those that
// servers show their clients, too, and reads certificate files again when they change.
//
// It knows neither nodes nor connections: who checks a certificate, and how, is for others to say.
package certs
