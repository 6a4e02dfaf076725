// Package notify gathers what webhooks are to be told of, in the entry that makes it happen. It knows nothing of webhooks but which kinds
// of notifications somebody wants.
package notify
