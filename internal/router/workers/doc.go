// Package workers joins what each node's registry knows of the workers that are connected to it: lists and counts over all nodes, which
// workers are lost, and which should be quiet.
//
// It does not know how a registry notices that a worker is gone, nor what workers do.
package workers
