package node

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// A member that has lost data must not vote: it may have promised what it has forgotten. If there are others, it is treated like a
// node whose disk was lost: it joins again, under its old name and with a new number, its data is set aside, and the others send it
// its replicas. If there are none, only the operator can decide.

const (
	// damagedPrefix begins the names of directories that keep damaged data. Only the operator deletes them.
	damagedPrefix = "damaged-"
	// damageFile records damage found while the node ran, for its next start, which might otherwise open everything and run until
	// it hits the same damage.
	damageFile = "DAMAGED"
)

// replaceable reports whether the node can join again after err: it was one of several, according to its saved map.
func (n *Node) replaceable(err error) bool {
	if !errors.Is(err, ErrDamaged) || n.cfg.AcceptDataLoss || n.cfg.InMemory || n.cfg.PeerListener == nil || n.known == nil {
		return false
	}
	_, member := n.known.Named(n.cfg.Name)
	return member && len(n.others()) > 0
}

// mayAcceptLoss refuses to open what remains of a damaged log on a node that is one of several: it would vote although it has
// forgotten what it promised.
func (n *Node) mayAcceptLoss() error {
	if !n.cfg.AcceptDataLoss || n.alone() {
		return nil
	}
	return fmt.Errorf("--accept-data-loss (AcceptDataLoss) is for a cluster of one node, and %s is one of %d: without it the others fill the "+
		"node again; if they are lost for good, see `pawl recover`", n.cfg.Dir, len(n.known.Members()))
}

// others returns the addresses of the other nodes, as known before the start.
func (n *Node) others() (join []string) {
	for _, a := range addresses(n.known) {
		if a.Name != n.cfg.Name {
			join = append(join, a.Address)
		}
	}
	return join
}

// replace joins the others in place of the member that this node was. They may have to notice its absence first, and don't admit it
// while they depend on it. Until they do nothing is moved, so that everything can still be undone.
func (n *Node) replace(ctx context.Context, damage error) error {
	n.cfg.Logger.Error("damaged: this node rejoins and is filled by the others", "error", damage)
	former := n.identity.read().Cluster
	n.identity.reset(n.cfg.Name)
	n.damaged.Store(true)
	defer n.damaged.Store(false)
	n.transport.SetPeers(nil)
	for said := (time.Time{}); ; {
		for _, address := range n.others() {
			refused, err := n.rejoin(ctx, address, former)
			if err != nil || n.identity.read().member() {
				return err
			}
			if refused != "" && time.Since(said) > formLog {
				said = time.Now()
				n.cfg.Logger.Info("not admitted yet, this takes a few seconds", "address", address, "reason", refused)
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
func (n *Node) rejoin(ctx context.Context, address, former string) (refused string, err error) {
	request, err := cbor.Marshal(introduction{Name: n.cfg.Name, Member: true})
	if err != nil {
		return "", err
	}
	who, _, err := n.introduce(ctx, address, request)
	switch of := hex.EncodeToString(who.Cluster[:]); {
	case err != nil:
		return "", nil // it may be down
	case former != "" && of != former:
		return fmt.Sprintf("there is node %q of cluster %s, and this one was of %s", who.Name, of, former), nil
	}
	return n.join(ctx, address)
}

// setAside moves everything but the archive out of the way, and makes the directory that of the new number. The identity goes
// first: a start that finds the new one moves the rest.
func (n *Node) setAside(of string, number uint32) error {
	to, err := makeAside(n.cfg.Dir)
	if err != nil {
		return err
	}
	if err := n.identity.join(of, number, filepath.Base(to)); err != nil {
		return err
	}
	return n.finishAside()
}

// makeAside creates a directory for damaged data, with a copy of the identity.
func makeAside(dir string) (to string, err error) {
	for i := 1; ; i++ {
		to = filepath.Join(dir, fmt.Sprintf("%s%d", damagedPrefix, i))
		if err := os.Mkdir(to, 0o700); err == nil {
			break
		} else if !errors.Is(err, os.ErrExist) {
			return to, err
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err == nil {
		err = replaceFile(filepath.Join(to, identityFile), text)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return to, errors.Join(err, syncDir(dir))
}

// finishAside moves the rest.
func (n *Node) finishAside() error {
	aside := n.identity.read().Aside
	if aside == "" {
		return nil
	}
	to := filepath.Join(n.cfg.Dir, aside)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(n.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name == logDir || strings.HasPrefix(name, "shard-") || name == damageFile {
			err = errors.Join(err, os.Rename(filepath.Join(n.cfg.Dir, name), filepath.Join(to, name)))
		}
	}
	if err = errors.Join(err, syncDir(to), syncDir(n.cfg.Dir)); err != nil {
		return err
	}
	n.cfg.Logger.Info("the damaged data was set aside: delete it once you have examined it", "aside", to)
	return n.identity.asideCleared()
}

// noteDamage records damage for the next start, since it can't be repaired while the node runs, and adds to the error what that
// start will do.
func (n *Node) noteDamage(err error) error {
	var damage *DamageError
	if n.cfg.InMemory || !errors.As(err, &damage) {
		return err
	}
	if n.foundDamage() == nil {
		text, jsonErr := json.Marshal(damage)
		if jsonErr == nil {
			jsonErr = replaceFile(filepath.Join(n.cfg.Dir, damageFile), append(text, '\n'))
		}
		if jsonErr != nil {
			return errors.Join(err, fmt.Errorf("and it was not noted for the next start: %w", jsonErr))
		}
	}
	if n.cfg.PeerListener != nil && n.member.Load() && len(n.copy.Map().Members()) > 1 {
		return fmt.Errorf("%w: start it again, and the other nodes will fill it", err)
	}
	return fmt.Errorf("%w: start it again to see what can be done", err)
}

// foundDamage returns the damage recorded by an earlier run on this directory; nil: none.
func (n *Node) foundDamage() error {
	path := filepath.Join(n.cfg.Dir, damageFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	damage := &DamageError{}
	if json.Unmarshal(text, damage) != nil || damage.File == "" {
		damage = &DamageError{What: "directory", File: n.cfg.Dir, Reason: "something in it was found to be damaged"}
	}
	if n.cfg.AcceptDataLoss && damage.What == "log" { // opening it gives up what is unreadable
		return errors.Join(os.Remove(path), syncDir(n.cfg.Dir))
	}
	damage.Reason += fmt.Sprintf(" (noted in %s)", path)
	return damage
}

// ready returns why the node should get no calls now. A node whose replicas are being filled does serve, but a rolling restart must
// wait for it: while replicas of its former number have votes, the others can't lose another node.
func (n *Node) ready() error {
	if err := n.router.Ready(); err != nil {
		return err
	}
	m := n.copy.Map()
	for _, row := range m.Shards {
		for _, r := range row.Replicas {
			if of, _ := m.Node(r.Node); of.State == cluster.Removed && of.Name == n.cfg.Name {
				return task.Unavailable(time.Second, "shard %d: this node's replica is being filled", row.ID)
			}
		}
	}
	return nil
}

// removed reports whether a number is that of a removed node.
func (n *Node) removed(number uint32) bool {
	if !n.member.Load() {
		return false
	}
	node, ok := n.copy.Node(number)
	return ok && node.State == cluster.Removed
}

// leaveIfRemoved ends the node if the cluster says that it is no longer a member.
func (n *Node) leaveIfRemoved(err error) {
	if e, ok := task.AsError(err); ok && e.Code == task.CodeWrongState {
		n.fail(fmt.Errorf("this node is no longer a member: %w; the cluster has no use for its data directory %s", err, n.cfg.Dir))
	}
}
