// Package workflow lets tasks follow others, and be members of groups that enqueue tasks when their members have ended. It knows of a task what
// its links say, and nothing of how it came to its end.
package workflow
