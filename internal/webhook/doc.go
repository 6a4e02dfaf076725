// Package webhook sends notifications to other programs: signed according to Standard Webhooks (https://www.standardwebhooks.com),
// over HTTPS, and to no address that must not be reachable through this server.
//
// It knows what a notification looks like and the outcome of one attempt to send it. It does not know which webhooks exist or when
// to retry, nor tasks, shards and nodes.
package webhook
