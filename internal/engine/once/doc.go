// Package once makes effects of tasks happen only once: a claim holds a key until it reports a result. It knows of claims what the engine tells, but
// not where a key's shard is.
package once
