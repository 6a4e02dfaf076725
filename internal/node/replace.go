package node

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// A member that has lost data must not vote: it may have promised what it has forgotten. If there are others, it is treated like a
// node whose disk was lost: it joins again, under its old name and with a new number, its data is set aside, and the others send it
// its replicas. If there are none, only the operator can decide.

// replaceable reports whether the node can join again after err: it was one of several, according to its saved map.
func (b *bootstrap) replaceable(err error) bool {
	if !errors.Is(err, ErrDamaged) || b.cfg.AcceptDataLoss || b.cfg.InMemory || b.cfg.PeerListener == nil || b.known == nil {
		return false
	}
	_, member := b.known.Named(b.cfg.Name)
	return member && len(b.others()) > 0
}

// mayAcceptLoss refuses to open what remains of a damaged log on a node that is one of several: it would vote although it has
// forgotten what it promised.
func (b *bootstrap) mayAcceptLoss() error {
	if !b.cfg.AcceptDataLoss || b.alone() {
		return nil
	}
	return fmt.Errorf("--accept-data-loss (AcceptDataLoss) is for a cluster of one node, and %s is one of %d: without it the others fill the "+
		"node again; if they are lost for good, see `pawl recover`", b.cfg.Dir, len(b.known.Members()))
}

// others returns the addresses of the other nodes, as known before the start.
func (b *bootstrap) others() (join []string) {
	for _, a := range addresses(b.known) {
		if a.Name != b.cfg.Name {
			join = append(join, a.Address)
		}
	}
	return join
}

// replace joins the others in place of the member that this node was. They may have to notice its absence first, and don't admit it
// while they depend on it. Until they do nothing is moved, so that everything can still be undone.
func (b *bootstrap) replace(ctx context.Context, damage error) error {
	b.cfg.Logger.Error("damaged: this node rejoins and is filled by the others", "error", damage)
	former := b.dir.Identity.Read().Cluster
	b.dir.Identity.Reset(b.cfg.Name)
	b.damaged.Store(true)
	defer b.damaged.Store(false)
	b.transport.SetPeers(nil)
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("no node has readmitted this one: %w; %w", ctx.Err(), damage)
		case <-time.After(joinPause):
		}
	}
}

// rejoin asks the node at an address to admit this one, if it belongs to the cluster that this one was in, as far as that is known.
func (b *bootstrap) rejoin(ctx context.Context, address, former string) (refused string, err error) {
	request, err := cbor.Marshal(introduction{Name: b.cfg.Name, Member: true})
	if err != nil {
		return "", err
	}
	who, _, err := b.introduce(ctx, address, request)
	switch of := hex.EncodeToString(who.Cluster[:]); {
	case err != nil:
		return "", nil // it may be down
	case former != "" && of != former:
		return fmt.Sprintf("there is node %q of cluster %s, and this one was of %s", who.Name, of, former), nil
	}
	return b.join(ctx, address)
}
