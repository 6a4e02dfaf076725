// Package once keeps effects that tasks want to have only once: keys that a claim holds until it says what came of it. It knows of claims what the
// engine says, and nothing of where a key's shard lies.
package once
