// Package webhook sends notices to other programs: signed as Standard Webhooks says (https://www.standardwebhooks.com), over HTTPS, and to
// no address that a stranger must not reach through this server.
//
// It knows what a notice looks like and what came of one attempt to send it. It does not know which webhooks there are, when to try again,
// nor tasks, shards and nodes.
package webhook
