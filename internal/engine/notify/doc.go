// Package notify gathers events for webhooks, in the log entry that causes them. Of webhooks it knows only which kinds
// of notifications they subscribe to.
package notify
