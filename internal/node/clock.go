package node

import (
	"context"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/cluster"
)

// clockInterval is how often a node's wall clock is compared with those of the others.
const clockInterval = 2 * time.Second

// watchClock keeps this node from leading while its wall clock differs from the others', until ctx ends. Nobody may transfer
// leadership to it meanwhile, nor while its disk is known to be slow. A node that is alone leads in any case.
func (h *health) watchClock(ctx context.Context) {
	timer := time.NewTimer(clockInterval)
	defer timer.Stop()
	for wasWrong := false; ; {
		if changed := h.copy.Changed(); !hasPeers(h.copy.Map()) {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				continue
			}
		}
		timer.Reset(clockInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		offset, known := h.clockOffset(h.copy.Map())
		h.offset.Store(int64(offset))
		wrong := known && offset.Abs() > cluster.MaxClockOffset
		if wrong != wasWrong {
			wasWrong = wrong
			if wrong {
				h.cfg.Logger.Error("the wall clock differs from those of most nodes: this node leads no shard until it agrees", "offset",
					offset)
			} else {
				h.cfg.Logger.Info("the wall clock agrees with those of most nodes again", "offset", offset)
			}
		}
		slow, bar := false, ""
		switch {
		case h.leaving.Load():
			bar = whyStops
		case wrong:
			bar = "the wall clock of the node is wrong"
		}
		for _, id := range h.replicas.all() {
			if rep := h.replicas.get(id); rep != nil {
				rep.shard.Bar(bar)
				slow = slow || rep.shard.SlowDisk()
			}
		}
		h.slow.Store(slow)
		h.barred.Store(wrong || slow)
		h.disk.CheckFull() // also while nobody asks for reports
	}
}

// hasPeers reports whether the cluster has, or may have, other nodes.
func hasPeers(m *cluster.Map) bool { return m == nil || len(m.Members()) > 1 }

// clockOffset returns how far this node's wall clock is ahead of the median of all nodes' that answer. It is not known if most
// don't answer. With two nodes it is the offset from the other, and not known which of the two is wrong.
func (h *health) clockOffset(m *cluster.Map) (offset time.Duration, known bool) {
	if m == nil {
		return 0, false
	}
	me, all := h.identity.Read().Node, len(m.Members())
	offsets := []time.Duration{0}
	for _, node := range m.Members() {
		if o, _, ok := h.transport.Offset(node.Number); ok && node.Number != me {
			offsets = append(offsets, o)
		}
	}
	if all == 2 && len(offsets) == 2 {
		return -offsets[1], false
	}
	if all < 3 || 2*len(offsets) <= all {
		return 0, false
	}
	slices.Sort(offsets)
	return -offsets[(len(offsets)-1)/2], true
}
