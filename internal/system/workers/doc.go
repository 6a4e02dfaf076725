// Package workers keeps in the system shard which workers take no new tasks, by an operator's request. A worker stays quiet after its node
// is gone, and on whichever node it connects to next: nodes learn of the rows with the rest of their copies.
//
// It does not know who is connected.
package workers
