package node

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// A member that has lost data must not vote: it may have promised what it has forgotten. If there are others, it is treated like a
// node whose disk was lost: it joins again, under its old name and with a new number, its data is set aside, and the others send it
// its replicas. If there are none, only the operator can decide.

// replaceable reports whether the node can join again after err: it was one of several, according to the map. If that is lost, it is
// asked for at the addresses of --join.
func (b *bootstrap) replaceable(ctx context.Context, err error) bool {
	if !errors.Is(err, ErrDamaged) || b.cfg.AcceptDataLoss || b.cfg.InMemory || b.cfg.PeerListener == nil {
		return false
	}
	if b.known.Load() == nil || len(b.known.Load().Members()) < 2 { // lost, or older than the other nodes
		b.askForMap(ctx)
	}
	if b.known.Load() == nil {
		return false
	}
	_, member := b.known.Load().Named(b.cfg.Name)
	return member && len(b.known.Load().Members()) > 1
}

// mayAcceptLoss refuses to open what remains of a damaged log on a node that is, or may be, one of several: it would vote although it
// has forgotten what it promised.
func (b *bootstrap) mayAcceptLoss() error {
	switch {
	case !b.cfg.AcceptDataLoss || b.alone():
		return nil
	case b.known.Load() == nil:
		return fmt.Errorf("--accept-data-loss (AcceptDataLoss) is for a cluster of one node, and %s is one of several: without it the "+
			"others fill the node again, if they are given with --join (Join); if they are lost for good, see `pawl recover`", b.cfg.Dir)
	}
	return fmt.Errorf("--accept-data-loss (AcceptDataLoss) is for a cluster of one node, and %s is one of %d: without it the "+
		"others fill the node again; if they are lost for good, see `pawl recover`", b.cfg.Dir, len(b.known.Load().Members()))
}

// others returns the addresses of the other nodes, as known before the start, and those of --join.
func (b *bootstrap) others() []string {
	all := slices.Clone(b.cfg.Join)
	for _, a := range addresses(b.known.Load()) {
		if a.Name != b.cfg.Name {
			all = append(all, a.Address)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// replace joins the others in place of the member that this node was. They may have to notice its absence first, and don't admit it
// while they depend on it. Until they do nothing is moved, so that everything can still be undone.
func (b *bootstrap) replace(ctx context.Context, damage error) error {
	b.cfg.Logger.Error("damaged: this node rejoins and is filled by the others", "error", damage)
	former := cmp.Or(b.dir.Identity.Read().Cluster, b.of)
	b.dir.Identity.Reset(b.cfg.Name)
	b.damaged.Store(true)
	defer b.damaged.Store(false)
	b.transport.SetPeers(nil)
	b.waits.set("the node's data is damaged: it waits for its cluster to admit it again")
	for logged := (time.Time{}); ; {
		for _, address := range b.others() {
			refused, err := b.rejoin(ctx, address, former)
			if err != nil || b.dir.Identity.Read().Member() {
				return err
			}
			if refused != "" && time.Since(logged) > formLog {
				logged = time.Now()
				b.cfg.Logger.Info("not admitted yet, this takes a few seconds", "address", address, "reason", refused)
			}
		}
		if pause(ctx, joinPause) != nil {
			return fmt.Errorf("no node has readmitted this one: %w; %w", ctx.Err(), damage)
		}
	}
}

// rejoin asks the node at an address to admit this one, if it belongs to the cluster that this one was in, as far as that is known.
func (b *bootstrap) rejoin(ctx context.Context, address, former string) (refused string, err error) {
	request, err := cbor.Marshal(introduction{Name: b.cfg.Name, Member: true})
	if err != nil {
		return "", err
	}
	who, g, err := b.introduce(ctx, address, request)
	switch of := hex.EncodeToString(who.Cluster[:]); {
	case err != nil:
		return "", nil // it may be down
	case !g.Member:
		return fmt.Sprintf("node %q at %s belongs to no cluster yet", who.Name, address), nil
	case who.Number == 0:
		return fmt.Sprintf("node %q at %s waits to be readmitted too", who.Name, address), nil
	case former != "" && of != former:
		return fmt.Sprintf("there is node %q of cluster %s, and this one was of %s", who.Name, of, former), nil
	}
	return b.join(ctx, address)
}
