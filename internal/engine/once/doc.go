// Package once makes effects of tasks happen only once: a claim holds a key until it reports a result. The engine tells it which
// claims hold; it does not know where a key's shard is.
package once
