// Package members is what a node knows of the others. It decides which nodes the node admits and believes, by its copy of the map of the
// cluster, saves that map, and finds a newer one when it is too old. A Witness remembers how far the replicas of other nodes have come. A
// Comparer compares the replicas of the shards that the node leads. It knows neither connections nor calls, nor what replicas hold.
package members

import (
	"fmt"

	"github.com/pawlq/pawl/internal/cluster"
)

// Request is the kind of a request, as far as that matters for the admission of its sender.
type Request int

// The requests. Changes tell a removed node that it was removed. Reach says how far the replicas of a node had come, since the node that is
// asked may be the one that has forgotten others.
const (
	Anything Request = iota
	Changes
	Reach
)

// Refusal is why a node is not admitted.
type Refusal struct {
	Reason string
	// Unknown: it may have just joined.
	Unknown bool
	// Out: it is certainly no member, or has the name of a node that was removed.
	Out bool
}

func (r *Refusal) Error() string { return r.Reason }

// Admit returns why a node is not admitted according to a map, and asks for a newer one if the node may have just joined. A node without a
// map is no member itself, and answers few calls.
func (r *Refresher) Admit(m *cluster.Map, number uint32, name string, wants Request) error {
	if m == nil {
		return nil
	}
	no := admit(m, number, name, wants)
	if no == nil {
		return nil
	}
	if no.Unknown {
		r.Want()
	}
	return no
}

// admit admits only members, under their own names; nil: it is admitted. The names are those in their certificates, so the certificate of a
// removed node is good for no other number either. A node that the map doesn't have yet is refused until it does, which takes a moment.
// Nothing depends on it until then, not even Raft: without the map it could not be answered.
func admit(m *cluster.Map, number uint32, name string, wants Request) *Refusal {
	switch node, ok := m.Node(number); {
	case ok && node.Name != name:
		return &Refusal{Reason: fmt.Sprintf("node %d is named %q, not %q", number, node.Name, name), Out: true}
	case ok && node.State != cluster.Removed, (ok || number < m.Settings.NextNode) && wants == Changes:
		return nil
	case ok || number < m.Settings.NextNode:
		return &Refusal{Reason: "you were removed from the cluster", Out: true}
	case wants == Reach && !m.HasRemoved(name):
		return nil
	}
	r := &Refusal{Reason: fmt.Sprintf("this node does not know a member with number %d yet", number), Unknown: true}
	if r.Out = m.HasRemoved(name); r.Out {
		r.Reason += fmt.Sprintf(", and node %q was removed", name)
	}
	return r
}

// CheckAnswer returns an error for an answer that came from a node at some address, if it has the name of a node that was removed,
// according to a map, or another's number. A member that the map doesn't have yet is believed. Without a map everybody is.
func CheckAnswer(m *cluster.Map, number uint32, name string) error {
	if m == nil {
		return nil
	}
	if no := admit(m, number, name, Anything); m.HasRemoved(name) || number != 0 && no != nil && no.Out {
		return fmt.Errorf("node %q (%d) answered: it was removed from the cluster, or claims the number of another node", name, number)
	}
	return nil
}
