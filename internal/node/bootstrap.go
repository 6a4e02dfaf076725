package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/node/members"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/transport"
)

// A new node asks the addresses it was told to join. A node that belongs to a cluster admits it. If all are new, they wait until
// each has heard of all the others, and all see the same set; then the node with the smallest name founds the cluster, and the
// others join it. So a node that has lost its disk founds nothing while it can't reach all the others, and once it can, they belong
// to a cluster.

// The calls that a node without a cluster may make.
const (
	methodHello = "hello"
	methodJoin  = "join"
)

// introduction is what nodes tell each other before they are members.
type introduction struct {
	Name   string
	Nonce  string
	Member bool     // it is a member, or was one and waits to be readmitted: new nodes must not found another cluster with it
	Sees   []string // names of the new nodes, itself included, that it has found at its --join addresses
}

// admission is the answer to a join.
type admission struct {
	Joined  cluster.Joined
	Refused string
	Again   bool // it may work later
}

const (
	// formPause is how often the others are asked, joinPause how often a member that did not admit this node.
	formPause = 250 * time.Millisecond
	joinPause = time.Second
	// askTime bounds one such call.
	askTime = 3 * time.Second
	// joinTime is how long a node keeps asking while it is refused: the previous node of its name may not be considered dead yet.
	joinTime = 30 * time.Second
	// formLog is how often a node logs whom it waits for.
	formLog = 10 * time.Second
)

// bootstrap makes this node a member of a cluster: it finds the other nodes, then founds a cluster with them or joins theirs.
type bootstrap struct {
	cfg       Config
	dir       *datadir.Dir
	transport *transport.Transport
	waits     *waits
	known     atomic.Pointer[cluster.Map] // as it was before the start; nil: unknown
	of        string                      // the cluster that the saved map is of; "": unknown
	sees      atomic.Value                // []string: introduction.Sees
	damaged   atomic.Bool                 // waits to be readmitted
}

// waits is what a node waits for before it can serve. Everybody may see it, so it names no nodes and no addresses: the log does.
type waits struct{ what atomic.Value } // string

func (w *waits) set(format string, args ...any) { w.what.Store(fmt.Sprintf(format, args...)) }

func (w *waits) text() string {
	if text, ok := w.what.Load().(string); ok {
		return text
	}
	return "the node starts"
}

// alone reports whether there were no other nodes, as far as was known before the start.
func (b *bootstrap) alone() bool {
	return !b.dir.Identity.Read().Others && (b.known.Load() == nil || len(b.known.Load().Members()) <= 1)
}

// hello answers an introduction.
func (b *bootstrap) hello(request []byte) ([]byte, error) {
	var g introduction
	if err := cbor.Unmarshal(request, &g); err != nil {
		return nil, err
	}
	me := b.dir.Identity.Read()
	sees, _ := b.sees.Load().([]string)
	return cbor.Marshal(introduction{Name: me.Name, Nonce: me.Nonce, Member: me.Member() || b.damaged.Load(), Sees: sees})
}

// admit lets a node join under its own name, wherever that is decided.
func (e peerHandler) admit(ctx context.Context, from transport.Peer, request []byte) ([]byte, error) {
	var r cluster.JoinRequest
	if err := cbor.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	if !e.n.member.Load() {
		return cbor.Marshal(admission{Refused: errNoMember.Error(), Again: true})
	}
	if r.Name != from.Name {
		reason := fmt.Errorf("%v asked to join as %q", from, r.Name)
		proven, address := transport.CallerOf(ctx)
		e.n.evidence.RefusedNode(r.Name, proven, address, reason)
		return cbor.Marshal(admission{Refused: reason.Error()})
	}
	joined, err := cluster.Join.Call(ctx, e.n.router, r)
	if err == nil {
		return cbor.Marshal(admission{Joined: joined})
	}
	refusal, refused := task.AsError(err)
	return cbor.Marshal(admission{Refused: err.Error(), Again: !refused || refusal.Code == task.CodeUnavailable ||
		refusal.Code == task.CodeConflict})
}

// run makes a new node a member: of the cluster that it finds, or of one that it founds.
func (b *bootstrap) run(ctx context.Context) error {
	if b.dir.Identity.Read().Member() {
		return nil
	}
	if err := b.dir.Identity.Keep(); err != nil { // a join whose answer is lost is retried by the same directory
		return err
	}
	if len(b.cfg.Join) == 0 {
		return b.found()
	}
	var logged time.Time
	for began := time.Now(); ; {
		found, err := b.probe(ctx)
		b.waits.set("the node waits for the nodes of --join: %d of %d answer", len(b.cfg.Join)-len(found.missing), len(b.cfg.Join))
		if err == nil && found.member != "" {
			b.waits.set("the node waits for its cluster to admit it")
			var refused string
			if refused, err = b.joinInTime(ctx, found.member, began); refused != "" && time.Since(logged) > formLog {
				logged = time.Now()
				b.cfg.Logger.Warn("not admitted yet, and asks again every second", "address", found.member, "reason", refused)
			}
		}
		switch {
		case err != nil:
			return err
		case b.dir.Identity.Read().Member():
			return nil
		case found.complete && found.member == "" && b.mayBootstrap(found.fresh):
			b.cfg.Logger.Info("founding a cluster", "node", b.cfg.Name, "with", names(found.fresh))
			return b.found()
		}
		b.sees.Store(names(found.fresh))
		if found.member == "" && time.Since(logged) > formLog {
			logged = time.Now()
			b.cfg.Logger.Info("waiting for the nodes of --join", "found", names(found.fresh), "missing", found.missing)
		}
		rest := formPause
		if found.member != "" {
			rest = joinPause
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no cluster was formed: %w (found %q, no answer from %q)", ctx.Err(), names(found.fresh), found.missing)
		case <-time.After(rest):
		}
	}
}

// found founds a cluster.
func (b *bootstrap) found() error { return b.dir.Identity.Found(max(b.cfg.DataShards, 1)) }

// probeResult is the result of asking the --join addresses once.
type probeResult struct {
	member   string // address of a node that is a member; "": none
	fresh    []introduction
	missing  []string // addresses that did not answer
	complete bool     // whether all answered
}

func (b *bootstrap) probe(ctx context.Context) (f probeResult, err error) {
	me := b.dir.Identity.Read()
	f.fresh = []introduction{{Name: me.Name, Nonce: me.Nonce}}
	request, err := cbor.Marshal(f.fresh[0])
	if err != nil {
		return f, err
	}
	for _, address := range b.cfg.Join {
		_, g, err := b.introduce(ctx, address, request)
		switch {
		case err != nil:
			f.missing = append(f.missing, address)
		case g.Nonce == me.Nonce: // this node itself
		case g.Member:
			f.member = address
			return f, nil
		case g.Name == me.Name:
			return f, fmt.Errorf("the node at %s is named %q like this one: each needs its own name (--node)", address, g.Name)
		default:
			f.fresh = append(f.fresh, g)
		}
	}
	f.complete = len(f.missing) == 0
	return f, nil
}

// introduce asks which node is at an address.
func (b *bootstrap) introduce(ctx context.Context, address string, request []byte) (who transport.Peer, g introduction, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	who, answer, err := b.transport.CallAddress(ctx, address, methodHello, request)
	if err != nil {
		b.cfg.Logger.Debug("no answer", "address", address, "error", err)
		return who, g, err
	}
	return who, g, cbor.Unmarshal(answer, &g)
}

// mayBootstrap reports whether all see the same nodes, and this node is the first of them.
func (b *bootstrap) mayBootstrap(fresh []introduction) bool {
	all := names(fresh)
	for _, g := range fresh {
		if g.Name != b.cfg.Name && !slices.Equal(g.Sees, all) {
			return false
		}
	}
	return all[0] == b.cfg.Name
}

func names(fresh []introduction) (all []string) {
	for _, g := range fresh {
		all = append(all, g.Name)
	}
	slices.Sort(all)
	return all
}

// errRefused: the cluster does not accept this node.
var errRefused = errors.New("the cluster refuses this node")

// joinInTime asks the member at an address to admit this node, and gives up if that is refused for too long.
func (b *bootstrap) joinInTime(ctx context.Context, address string, began time.Time) (refused string, err error) {
	if refused, err = b.join(ctx, address); err == nil && refused != "" && time.Since(began) > joinTime {
		err = fmt.Errorf("%w: %s", errRefused, refused)
	}
	return refused, err
}

// join asks the member at an address to admit this node. Refused is the reason why it doesn't yet. It is no error if the member
// doesn't answer.
func (b *bootstrap) join(ctx context.Context, address string) (refused string, err error) {
	me := b.dir.Identity.Read()
	request, err := cbor.Marshal(cluster.JoinRequest{Name: me.Name, PeerAddress: b.cfg.PeerAddress, APIAddress: b.cfg.APIAddress,
		Version: b.cfg.Version, MinLevel: minLevel, MaxLevel: maxLevel, Nonce: datadir.DecodeID(me.Nonce)})
	if err != nil {
		return "", err
	}
	a, of, err := b.askToJoin(ctx, address, request)
	switch {
	case err != nil:
		b.cfg.Logger.Warn("no answer to a join request", "address", address, "error", err)
		return "", nil
	case a.Refused == "" && (a.Joined.Number == 0 || a.Joined.Map == nil):
		return "", fmt.Errorf("%w: the node at %s answered with number %d, and a map: %t", errRefused, address, a.Joined.Number,
			a.Joined.Map != nil)
	case a.Refused == "":
		b.cfg.Logger.Info("joined a cluster", "node", me.Name, "number", a.Joined.Number)
		return "", b.enter(hex.EncodeToString(of.Cluster[:]), a.Joined)
	case !a.Again:
		return "", fmt.Errorf("%w: %s", errRefused, a.Refused)
	}
	return a.Refused, nil
}

// enter makes the directory that of a member. The map is saved first: without it the node would not find the others after a crash.
func (b *bootstrap) enter(of string, joined cluster.Joined) error {
	b.of = of
	b.known.Store(joined.Map)
	if err := members.Save(b.dir, of, joined.Map); err != nil {
		return err
	}
	if b.damaged.Load() {
		return b.dir.SetAside(of, joined.Number)
	}
	return b.dir.Identity.Join(of, joined.Number, "")
}

func (b *bootstrap) askToJoin(ctx context.Context, address string, request []byte) (a admission, of transport.Peer, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*askTime)
	defer cancel()
	of, answer, err := b.callAddress(ctx, b.known.Load(), address, methodJoin, request)
	if err != nil {
		return a, of, err
	}
	return a, of, cbor.Unmarshal(answer, &a)
}
