package cluster

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// MaxNodes bounds the nodes of a cluster: each of them polls the system shard's leader all the time.
	MaxNodes = 1000
	// maxRemovedNodes bounds the rows of removed nodes. The oldest are deleted; unknown nodes are refused as well.
	maxRemovedNodes = 1000
	maxNodeName     = 63 // a label of a host name
	maxAddress      = 300
	maxVersion      = 100
)

// FirstNode is the node that founds a cluster.
type FirstNode struct {
	Name, PeerAddress, APIAddress string // the addresses may be empty until it calls Hello
	Version                       string
	MinLevel, MaxLevel            int
}

// Found writes the first rows: node 1, and its replicas of the system shard and of the data shards 1 to shards. If the cluster exists it is
// a no-op. A directory from before these rows existed gets them in the same way.
func (p *Placement) Found(ctx context.Context, first FirstNode, shards int) error {
	n := Node{Number: 1, Name: first.Name, PeerAddress: first.PeerAddress, APIAddress: first.APIAddress, State: Active,
		Version: first.Version, MinLevel: first.MinLevel, MaxLevel: first.MaxLevel}
	if err := CheckName(first.Name); err != nil {
		return err
	}
	if shards < 1 || shards > MaxDataShards {
		return task.Invalid("shards", "%d is not between 1 and %d", shards, MaxDataShards)
	}
	_, err := system.Update(ctx, p.shard, func(tx *store.Tx) (struct{}, error) {
		if _, founded := tx.Get(system.SettingsKey); founded {
			return struct{}{}, nil
		}
		n.JoinedAt = tx.Now()
		p.setNode(tx, n)
		for id := range uint32(shards) + 1 {
			p.setShard(tx, newShard(id, n.Number))
		}
		p.setSettings(tx, system.Settings{Replication: defaultReplication, Level: first.MaxLevel, NextNode: 2, DataShards: shards})
		return struct{}{}, nil
	})
	return err
}

// newShard returns a shard that begins with one replica.
func newShard(id, node uint32) Shard {
	return Shard{ID: id, Replicas: []Replica{{ID: ReplicaID(0, node), Node: node, Founder: true}}, NextIncarnation: 1}
}

func (p *Placement) setNode(tx *store.Tx, n Node)   { p.set(tx, nodeKey(n.Number), system.EncodeRow(n)) }
func (p *Placement) setShard(tx *store.Tx, s Shard) { p.set(tx, shardKey(s.ID), system.EncodeRow(s)) }
func (p *Placement) setSettings(tx *store.Tx, s system.Settings) {
	p.set(tx, system.SettingsKey, system.EncodeRow(s))
}

// JoinRequest is the request of a node without a number for one.
type JoinRequest struct {
	Name, PeerAddress, APIAddress string
	Version                       string
	MinLevel, MaxLevel            int
	// Nonce is generated once per directory, so that a join whose answer was lost can be repeated.
	Nonce [16]byte
}

// Joined is the answer to a join.
type Joined struct {
	Number uint32
	Map    *Map // with the new node
}

// Join makes a node a member and assigns it a number. Repeating it with the same nonce returns the same answer. The name of a running node
// is refused. The name of a node that isn't running is taken over: the new node is assumed to be the same machine without its disk, so the
// old number and its replicas are removed for good.
func (p *Placement) Join(ctx context.Context, r JoinRequest) (Joined, error) {
	if err := r.check(); err != nil {
		return Joined{}, err
	}
	return system.Update(ctx, p.shard, func(tx *store.Tx) (Joined, error) {
		m, err := readMap(tx)
		if err != nil {
			return Joined{}, err
		}
		number, err := p.join(tx, m, r)
		if err != nil {
			return Joined{}, err
		}
		m, err = readMap(tx)
		return Joined{number, m}, err
	})
}

func (r JoinRequest) check() error {
	if err := CheckName(r.Name); err != nil {
		return err
	}
	if r.Nonce == ([16]byte{}) {
		return task.Invalid("nonce", "it is all zeros")
	}
	return checkPresence(r.PeerAddress, r.APIAddress, r.Version, r.MinLevel, r.MaxLevel)
}

// CheckName returns an error if name is not a valid node name: 1 to 63 of a-z, 0-9 and -.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= maxNodeName
	for i := 0; ok && i < len(name); i++ {
		b := name[i]
		ok = b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '-'
	}
	if !ok {
		return task.Invalid("node", "%q is not 1 to %d of a-z, 0-9 and -", name[:min(len(name), maxNodeName+1)], maxNodeName)
	}
	return nil
}

// checkPresence validates what a reachable node reports about itself.
func checkPresence(peer, api, version string, minLevel, maxLevel int) error {
	for _, a := range []struct{ field, value string }{{"peer_address", peer}, {"api_address", api}} {
		if len(a.value) > maxAddress {
			return task.Invalid(a.field, "it has %d characters, at most %d", len(a.value), maxAddress)
		}
		if host, port, err := net.SplitHostPort(a.value); err != nil || host == "" || port == "" {
			return task.Invalid(a.field, "%q is not host:port", a.value)
		}
	}
	return checkProgram(version, minLevel, maxLevel)
}

func checkProgram(version string, minLevel, maxLevel int) error {
	if len(version) > maxVersion {
		return task.Invalid("version", "it has %d characters, at most %d", len(version), maxVersion)
	}
	if minLevel < 1 || maxLevel < minLevel {
		return task.Invalid("min_level", "levels %d to %d are not a range from 1 up", minLevel, maxLevel)
	}
	return nil
}

// join decides about a join, and writes it if it is granted.
func (p *Placement) join(tx *store.Tx, m *Map, r JoinRequest) (uint32, error) {
	if m.Settings.NextNode == 0 {
		return 0, task.Unavailable(time.Second, "join: there is no cluster here yet")
	}
	if i := slices.IndexFunc(m.Nodes, func(n Node) bool { return n.Nonce == r.Nonce }); i >= 0 {
		return joinedAlready(m.Nodes[i], r)
	}
	if err := CheckLevel(m.Settings, r.Name, r.MinLevel, r.MaxLevel); err != nil {
		return 0, err
	}
	old, replaces := m.Named(r.Name)
	if replaces {
		if err := p.checkReplace(m, old); err != nil {
			return 0, err
		}
	}
	if err := checkAddresses(m, old.Number, r.PeerAddress, r.APIAddress); err != nil {
		return 0, err
	}
	if n := len(m.Nodes) - countRemoved(m.Nodes); n >= MaxNodes && !replaces {
		return 0, system.WrongState("join of %q: the cluster has %d nodes, the most allowed", r.Name, n)
	}
	number := m.Settings.NextNode
	n := Node{Number: number, Name: r.Name, PeerAddress: r.PeerAddress, APIAddress: r.APIAddress, State: Active, Version: r.Version,
		MinLevel: r.MinLevel, MaxLevel: r.MaxLevel, Nonce: r.Nonce, JoinedAt: tx.Now()}
	var was any
	if replaces {
		was = factsOfNode(old)
	}
	by := task.Author{Name: r.Name, Interface: task.InterfaceNode, Address: hostOf(r.PeerAddress)}
	if err := onNode(tx, by, task.NodeJoined, n.Name, was, factsOfNode(n)); err != nil {
		return 0, err
	}
	if replaces {
		p.remove(tx, m, old, number)
	}
	p.forgetOldest(tx, m)
	m.Settings.NextNode++
	p.setSettings(tx, m.Settings)
	p.setNode(tx, n)
	return number, nil
}

// joinedAlready answers a repeated join.
func joinedAlready(n Node, r JoinRequest) (uint32, error) {
	switch {
	case n.State == Removed:
		return 0, removedError(n)
	case n.Name != r.Name:
		return 0, system.Conflict("join of %q: this directory joined as %q", r.Name, n.Name)
	}
	return n.Number, nil
}

// CheckLevel returns an error for a node whose release does not support the cluster's feature level.
func CheckLevel(s system.Settings, name string, minLevel, maxLevel int) error {
	if s.Level < minLevel || s.Level > maxLevel {
		return system.WrongState("node %q works at feature levels %d to %d, but the cluster is at %d: use another version of the program",
			name, minLevel, maxLevel, s.Level)
	}
	return nil
}

// checkReplace returns an error if a node's name must not pass to another one because the node may be needed. The call may be repeated.
func (p *Placement) checkReplace(m *Map, old Node) error {
	if d := p.liveness.silent(old.Number); d < aliveFor {
		return system.Conflict("node %q is running as number %d at %s, last seen %v ago: choose another name, or stop that one and wait %v",
			old.Name, old.Number, old.PeerAddress, d.Round(100*time.Millisecond), aliveFor)
	}
	err := p.checkLoss(m, old)
	if e, ok := task.AsError(err); ok && e.Code == task.CodeWrongState { // it passes once others answer again
		return task.Unavailable(time.Second, "%s", e.Message)
	}
	return err
}

// checkAddresses returns an error for addresses that another node has. A loopback address as API address may occur more than once: it is a
// different one on each machine, where only local clients use it.
func checkAddresses(m *Map, own uint32, peer, api string) error {
	for _, n := range m.Nodes {
		if n.Number == own || n.State == Removed {
			continue
		}
		if n.PeerAddress == peer {
			return system.Conflict("peer address %s is that of node %q", peer, n.Name)
		}
		if n.APIAddress == api && !loopback(api) {
			return system.Conflict("API address %s is that of node %q", api, n.Name)
		}
	}
	return nil
}

// hostOf returns the host of an address that was checked.
func hostOf(address string) string {
	host, _, _ := net.SplitHostPort(address)
	return host
}

func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

func countRemoved(nodes []Node) (n int) {
	for _, node := range nodes {
		if node.State == Removed {
			n++
		}
	}
	return n
}

// remove marks a node as removed and its replicas as leaving.
func (p *Placement) remove(tx *store.Tx, m *Map, n Node, replacedBy uint32) {
	n.State, n.ReplacedBy = Removed, replacedBy
	p.setNode(tx, n)
	for _, s := range m.Shards {
		s = s.clone()
		changed := s.Preferred == n.Number
		if changed {
			s.Preferred = 0
		}
		if r, ok := s.On(n.Number); ok && !s.leaves(r.ID) {
			s.Leaving = append(s.Leaving, r.ID)
			changed = true
		}
		if changed {
			p.setShard(tx, s)
		}
	}
}

// forgetOldest deletes the row of the oldest removed node, if there are too many and no shard still has a replica on it.
func (p *Placement) forgetOldest(tx *store.Tx, m *Map) {
	if countRemoved(m.Nodes) < maxRemovedNodes {
		return
	}
	for _, n := range m.Nodes {
		if n.State == Removed && len(m.holding(n.Number)) == 0 {
			tx.Delete(nodeKey(n.Number))
			p.shard.Note(tx, system.Change{})
			return
		}
	}
}

// holding returns the shards of which a node has a replica.
func (m *Map) holding(number uint32) (shards []uint32) {
	for _, s := range m.Shards {
		if _, ok := s.On(number); ok {
			shards = append(shards, s.ID)
		}
	}
	return shards
}

// Presence is what a member reports about itself when it starts. An empty address leaves the known one: a node that has
// always been alone has no PeerAddress.
type Presence struct {
	Number                  uint32
	PeerAddress, APIAddress string
	Version                 string
	MinLevel, MaxLevel      int
}

func (p Presence) check() error {
	if p.PeerAddress == "" {
		return checkProgram(p.Version, p.MinLevel, p.MaxLevel)
	}
	return checkPresence(p.PeerAddress, p.APIAddress, p.Version, p.MinLevel, p.MaxLevel)
}

// Hello stores what a member reports about itself: it may have moved, or run another version than before.
func (p *Placement) Hello(ctx context.Context, who Presence) (Node, error) {
	if err := who.check(); err != nil {
		return Node{}, err
	}
	return system.Update(ctx, p.shard, func(tx *store.Tx) (Node, error) {
		if err := mustBelong(tx, who.Number); err != nil {
			return Node{}, err
		}
		m, err := readMap(tx)
		if err != nil {
			return Node{}, err
		}
		n, _ := m.Node(who.Number)
		if err := CheckLevel(m.Settings, n.Name, who.MinLevel, who.MaxLevel); err != nil {
			return Node{}, err
		}
		now := n
		now.Version, now.MinLevel, now.MaxLevel = who.Version, who.MinLevel, who.MaxLevel
		now.PeerAddress, now.APIAddress = cmp.Or(who.PeerAddress, n.PeerAddress), cmp.Or(who.APIAddress, n.APIAddress)
		if err := checkAddresses(m, who.Number, now.PeerAddress, now.APIAddress); err != nil {
			return Node{}, err
		}
		if now != n {
			p.setNode(tx, now)
		}
		return now, nil
	})
}

// Drain moves replicas and leadership off a node, as far as others can take them.
func (p *Placement) Drain(ctx context.Context, by task.Author, name string) error {
	return p.setNodeState(ctx, auditlog.Action{By: by, Action: task.NodeDrained}, name, Draining)
}

// Undrain lets a node take replicas again.
func (p *Placement) Undrain(ctx context.Context, by task.Author, name string) error {
	return p.setNodeState(ctx, auditlog.Action{By: by, Action: task.NodeUndrained}, name, Active)
}

func (p *Placement) setNodeState(ctx context.Context, action auditlog.Action, name string, state NodeState) error {
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		n, ok := m.Named(name)
		if !ok {
			return task.NotFound("node", name)
		}
		if n.State == state {
			return nil
		}
		was := factsOfNode(n)
		n.State = state
		if err := onNode(tx, action.By, action.Action, name, was, factsOfNode(n)); err != nil {
			return err
		}
		p.setNode(tx, n)
		return nil
	})
}

// Remove removes a node for good. A node that holds replicas can only be removed by force: they leave, if every shard can go on without
// them.
func (p *Placement) Remove(ctx context.Context, by task.Author, name string, force bool) error {
	return changeMap(ctx, p, func(tx *store.Tx, m *Map) error {
		n, ok := m.Named(name)
		if !ok {
			if m.HasRemoved(name) {
				return nil // a repeat
			}
			return task.NotFound("node", name)
		}
		if len(m.Members()) == 1 {
			return system.WrongState("remove node %q: it is the only one", name)
		}
		if held := m.holding(n.Number); len(held) > 0 && !force {
			return system.WrongState("remove node %q: it holds replicas of %s: drain it first, or use force", name, shardList(held))
		}
		if err := p.checkLoss(m, n); err != nil {
			return err
		}
		was, is := factsOfNode(n), factsOfNode(n)
		is.State = Removed
		if err := onNode(tx, by, task.NodeRemoved, name, was, is); err != nil {
			return err
		}
		p.remove(tx, m, n, 0)
		return nil
	})
}

func shardList(ids []uint32) string {
	const most = 10
	b := strings.Builder{}
	b.WriteString("shard")
	if len(ids) > 1 {
		b.WriteString("s")
	}
	for i, id := range ids {
		if i == most {
			return b.String() + " and others"
		}
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(" " + shardName(id))
	}
	return b.String()
}

// checkLoss returns an error if a shard needs a node's replica for a majority that answers.
func (p *Placement) checkLoss(m *Map, n Node) error {
	for _, s := range m.Shards {
		r, ok := s.On(n.Number)
		if !ok {
			continue
		}
		status, ok := p.observations.certainStatus(s.ID)
		if !ok {
			return task.Unavailable(time.Second, "node %q holds a replica of %s, and it is not known now who votes there: it may be "+
				"needed; try again in a few seconds",
				n.Name, shardText(s.ID))
		}
		if !slices.Contains(status.Voters, r.ID) && !slices.Contains(status.VotersOutgoing, r.ID) {
			continue
		}
		// No node talks to a removed one, so the others must be a majority of the current voters.
		rest := slices.DeleteFunc(slices.Clone(status.Voters), func(id uint64) bool {
			at, known := m.Node(NodeOf(id))
			return id == r.ID || !known || at.State == Removed
		})
		if live := status.live(rest); 2*live <= len(status.Voters) {
			return system.WrongState("node %q can't be removed: only %d others of the %d voters of %s answer, and the shard would lose "+
				"its majority",
				n.Name, live, len(status.Voters), shardText(s.ID))
		}
		if len(status.VotersOutgoing) > 0 {
			return task.Unavailable(time.Second, "node %q: the voters of %s are being changed right now", n.Name, shardText(s.ID))
		}
	}
	return nil
}

func without(ids []uint64, id uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(ids), func(have uint64) bool { return have == id })
}

// HasShard reports whether a data shard exists.
func (p *Placement) HasShard(ctx context.Context, id uint32) (bool, error) {
	m, err := p.Map(ctx)
	if err != nil {
		return false, err
	}
	return id > 0 && int(id) <= m.Settings.DataShards, nil
}
