// Package live tells open pages when to refresh: each page has a stream of server-sent events, which says that
// something matching its Watch happened.
//
// It limits the streams of a node, and how often all of them together may ask for a refresh. It knows neither what
// pages show nor how they are rendered.
package live
