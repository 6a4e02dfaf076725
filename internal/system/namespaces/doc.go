// Package namespaces reads and changes the namespaces in the system shard, and their quotas. Queues, schedules, webhooks and markers ask it
// whether their namespace exists, and whether it may have one more.
//
// It knows their tables only as far as it must see whether a namespace is empty; whoever owns other rows of a namespace gives it a function
// that forgets them.
package namespaces
