package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/task"
)

// A member whose log has lost something must not vote: it may have promised what it has forgotten. Where there are others,
// it is taken for a node whose disk was lost: what is damaged is set aside, and it joins anew, under its old name and with a
// new number, and gets its replicas from the others. Where there are none, only the operator can decide.

// damagedPrefix begins the names of directories where damaged data is kept. Nobody but the operator deletes it.
const damagedPrefix = "damaged-"

// replaceable says whether the node can join anew after err.
func (n *Node) replaceable(err error) bool {
	return errors.Is(err, ErrDamaged) && !n.cfg.AcceptDataLoss && !n.cfg.InMemory && n.cfg.PeerListener != nil && len(n.others()) > 0
}

// mayAcceptLoss refuses to open what is left of a damaged log on a node that is one of several: it would vote with what it has
// forgotten.
func (n *Node) mayAcceptLoss() error {
	if !n.cfg.AcceptDataLoss || n.alone() {
		return nil
	}
	return fmt.Errorf("--accept-data-loss (AcceptDataLoss) is for a node that is alone, and %s is one of %d: without it the others fill the "+
		"node anew; if they are lost for ever, see `pawl recover`", n.cfg.Dir, len(n.known.Members()))
}

// others are the addresses of the other nodes, as they were known before the start.
func (n *Node) others() (join []string) {
	me := n.book.read().Node
	for number, a := range addresses(n.known) {
		if number != me {
			join = append(join, a.Address)
		}
	}
	return join
}

// replace makes a damaged member a fresh node, and joins the others with it.
func (n *Node) replace(ctx context.Context, damage error) error {
	join := n.others()
	to, err := n.setAside()
	if err != nil {
		return err
	}
	n.cfg.Logger.Error("damaged: set aside, to be filled anew by the others", "error", damage, "aside", to)
	n.cfg.Join = join
	n.known = nil
	fresh, err := openBook(n.cfg.Dir, n.cfg.Name)
	if err != nil {
		return err
	}
	n.book.become(fresh)
	return n.form(ctx)
}

// setAside moves all but the archive out of the way. The identity goes last: as long as it is there a start finds the
// damage again.
func (n *Node) setAside() (to string, err error) {
	for i := 1; ; i++ {
		to = filepath.Join(n.cfg.Dir, fmt.Sprintf("%s%d", damagedPrefix, i))
		if err := os.Mkdir(to, 0o700); err == nil {
			break
		} else if !errors.Is(err, os.ErrExist) {
			return to, err
		}
	}
	entries, err := os.ReadDir(n.cfg.Dir)
	if err != nil {
		return to, err
	}
	for _, e := range entries {
		if name := e.Name(); name == logDir || strings.HasPrefix(name, "shard-") || name == mapFile {
			err = errors.Join(err, os.Rename(filepath.Join(n.cfg.Dir, name), filepath.Join(to, name)))
		}
	}
	if err != nil {
		return to, err
	}
	return to, os.Rename(filepath.Join(n.cfg.Dir, identityFile), filepath.Join(to, identityFile))
}

// removed says whether a number is that of a node that is no member any more.
func (n *Node) removed(number uint32) bool {
	if !n.member.Load() {
		return false
	}
	node, ok := n.copy.Node(number)
	return ok && node.State == cluster.Removed
}

// leaveIfRemoved ends the node when the cluster says that it is no member any more.
func (n *Node) leaveIfRemoved(err error) {
	if e, ok := task.AsError(err); ok && e.Code == task.CodeWrongState {
		n.fail(fmt.Errorf("this node is no member any more: %w; its data directory %s is of no use to the cluster", err, n.cfg.Dir))
	}
}
