// Package evidence records what a node knows of who used it: visitors who logged in, callers and nodes that were refused.
//
// It writes to the node's trail and, in counts, to the cluster's audit log. It also exports the entries of that log. It
// knows neither requests nor how they are refused.
package evidence

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/audit/trail"
	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Recorder records evidence of a node.
type Recorder struct {
	Node  string // its name
	Auth  *auth.Authenticator
	Trail *trail.Trail
	Verbs verb.Runner
	// Replicas returns the replicas of the node.
	Replicas func() []members.Replica
}

// LoggedIn records that a visitor logged in to the web UI from a host: the name and namespace of the token, and whether it is for all
// namespaces.
func (r Recorder) LoggedIn(host, name, namespace string, all bool) {
	who := auth.Principal{Name: name, Rights: auth.Rights{Namespace: namespace}}
	if all {
		who.Namespace = auth.AllNamespaces
	}
	r.Trail.Record(trail.Event{Kind: trail.Login, Actor: who.Actor(), Token: who.Namespace + "/" + who.Name, Namespace: namespace,
		Interface: task.InterfaceUI, Address: host, Outcome: "ok"})
}

// RefusedNode counts and records the refusal of a node that is not a member, under the name that it gave itself and the one that its
// certificate proves; "": nothing does.
func (r Recorder) RefusedNode(name, proven, address string, reason error) {
	e := trail.Event{Kind: trail.Refusal, Actor: proven, Interface: task.InterfaceNode, Address: r.Auth.RefusedNode(address), Object: name,
		Outcome: string(task.CodePermissionDenied), Reason: reason.Error()}
	if proven != "" {
		e.Token = "/" + proven // no namespace is without a name
	}
	r.Trail.Record(e)
}

// RefusalsEvery is how often refused callers are recorded in the audit log: one entry for all of them, so that outsiders cannot
// fill it.
const RefusalsEvery = time.Minute

// NoteRefusals records in the audit log how many callers were refused, until ctx ends.
func (r Recorder) NoteRefusals(ctx context.Context) {
	tick := time.NewTicker(RefusalsEvery)
	defer tick.Stop()
	reported, _ := r.Auth.Refused()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, source := r.Auth.Refused()
		if now == reported {
			continue
		}
		since := func(f auth.Failure) uint64 { return now[f] - reported[f] }
		seen := tokens.Refusals{NoToken: since(auth.FailedNone), Malformed: since(auth.FailedForm), Unknown: since(auth.FailedUnknown),
			Expired: since(auth.FailedExpired), Denied: since(auth.FailedRights), Signature: since(auth.FailedSignature),
			NoMember: since(auth.FailedNode)}
		by := task.Author{Name: r.Node, Interface: task.InterfaceNode, Address: source}
		if _, err := tokens.NoteRefusals.Call(ctx, r.Verbs, tokens.RefusalsSeen{By: by, Refusals: seen}); err == nil {
			reported = now
		}
	}
}
