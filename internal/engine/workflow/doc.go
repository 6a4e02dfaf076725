// Package workflow implements follow-up tasks, and groups, which enqueue tasks when their members have ended. It knows
// a task's links and its final state, not how it got there.
package workflow
