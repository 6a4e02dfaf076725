package cluster

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/humanize"
)

// lowDisk is the fraction of a disk that should be free.
const lowDisk = 0.1

// nodeProblems returns the problems of the nodes. What a node that is away reported about its clock and disk is ignored as outdated.
func (o *Overview) nodeProblems() (list []Problem) {
	for i := range o.Nodes {
		n := &o.Nodes[i]
		if !n.Alive {
			list = append(list, n.away())
			continue
		}
		for _, find := range []func(*NodeOverview) (Problem, bool){o.clock, DiskProblem, noRoom, slowDisk, restarts, certificates} {
			if p, amiss := find(n); amiss {
				p.Node = n.Name
				list = append(list, p)
			}
		}
	}
	return list
}

// away describes a node that is not alive.
func (n *NodeOverview) away() Problem {
	p, silent := Problem{Kind: NodeAway, Node: n.Name, For: n.Silent, Text: "no answer from node " + n.Name}, n.Silent.Truncate(time.Second)
	switch {
	case n.Answers:
		p.Text = fmt.Sprintf("no report from node %s for %s: it answers, but the leader of the system shard does not hear from it", n.Name,
			silent)
	case n.Reported:
		p.Text += fmt.Sprintf(", last heard from %s ago", silent)
	case silent > 0:
		p.Text += fmt.Sprintf(" for at least %s", silent)
	}
	return p
}

// clock compares a node's wall clock with those of the others. Each of two nodes reports its distance from the other, and only the first is
// named.
func (o *Overview) clock(n *NodeOverview) (p Problem, amiss bool) {
	off := n.Report.ClockOffset
	if off.Abs() <= MaxClockOffset {
		return p, false
	}
	apart := off.Abs().Truncate(time.Millisecond)
	p = Problem{Kind: ClockWrong, Value: apart.Seconds()}
	side := "behind"
	if off > 0 {
		side = "ahead of"
	}
	switch {
	case len(o.Nodes) != 2:
		p.Text = fmt.Sprintf("the clock of node %s is %s %s those of most nodes: it leads no shard until the clock is right",
			n.Name, apart, side)
	case n != &o.Nodes[0] && o.Nodes[0].Alive && o.Nodes[0].Report.ClockOffset.Abs() > MaxClockOffset:
		return p, false
	default:
		other := &o.Nodes[0]
		if n == other {
			other = &o.Nodes[1]
		}
		p.Text = fmt.Sprintf("the clock of node %s is %s %s that of node %s, and with only two nodes there is no telling which is wrong",
			n.Name, apart, side, other.Name)
	}
	return p, true
}

// DiskProblem checks the free space on a node's disk.
func DiskProblem(n *NodeOverview) (p Problem, amiss bool) {
	r := &n.Report
	free := humanize.Bytes(r.DiskFree)
	switch {
	case r.DiskShort && r.DiskFree >= r.MinFree:
		p.Text = fmt.Sprintf("the disk of node %s has %s free, and had less than %s (--min-free): other nodes lead its shards "+
			"until it has had a quarter more free for a while",
			n.Name, free, humanize.Bytes(r.MinFree))
	case r.DiskShort && len(n.Leads) > 0:
		p.Text = fmt.Sprintf("the disk of node %s has %s free, less than %s (--min-free): new tasks are refused in the shards "+
			"that it leads (%s) until a node with room leads them",
			n.Name, free, humanize.Bytes(r.MinFree), shardsText(n.Leads))
	case r.DiskShort:
		p.Text = fmt.Sprintf("the disk of node %s has %s free, less than %s (--min-free): it leads no shard, since it takes no new tasks",
			n.Name, free, humanize.Bytes(r.MinFree))
	case float64(r.DiskFree) < float64(r.DiskTotal)*lowDisk:
		return Problem{Kind: DiskLow, Value: float64(r.DiskFree), Text: fmt.Sprintf("the disk of node %s has %s of %s free", n.Name, free,
			humanize.Bytes(r.DiskTotal))}, true
	default:
		return p, false
	}
	p.Kind, p.Value = DiskFull, float64(r.DiskFree)
	return p, true
}

// noRoom names the shards whose states a node has no room for.
func noRoom(n *NodeOverview) (p Problem, amiss bool) {
	r := &n.Report
	if len(r.NoRoom) == 0 {
		return p, false
	}
	var shards []uint32
	most := int64(0)
	for _, s := range r.NoRoom {
		shards, most = append(shards, s.Shard), max(most, s.Bytes)
	}
	text := fmt.Sprintf("the disk of node %s has %s free, too little to fill its replicas (%s): "+
		"the largest takes %s, and %s must stay free (--min-free)",
		n.Name, humanize.Bytes(r.DiskFree), shardsText(shards), humanize.Bytes(most), humanize.Bytes(r.MinFree))
	return Problem{Kind: DiskLow, Value: float64(r.DiskFree), Text: text}, true
}

func slowDisk(n *NodeOverview) (p Problem, amiss bool) {
	text := fmt.Sprintf("the disk of node %s is much slower than those of other nodes: it gets no shards to lead", n.Name)
	return Problem{Kind: DiskSlow, Text: text}, n.Report.SlowDisk
}

func restarts(n *NodeOverview) (p Problem, amiss bool) {
	return Problem{Kind: NodeRestart, Value: float64(n.Starts),
		Text: fmt.Sprintf("node %s has started %d times within %s: it gets no shards to lead until it has run for %s",
			n.Name, n.Starts, span(startsWindow), span(n.Proof))}, n.Proof > 0
}

const (
	// certificateSoon and certificateLast are how long before its end a certificate is a problem, and a severe one.
	certificateSoon = 30 * 24 * time.Hour
	certificateLast = 14 * 24 * time.Hour
)

// certificateNames are the words for the certificates of a report, and the flags of their files.
var certificateNames = map[string]string{"server": "server certificate (--tls-cert)", "client_ca": "client authority (--client-ca)",
	"peer": "peer certificate (--peer-cert)", "peer_ca": "peer authority (--peer-ca)"}

// certificates names the certificate of a node that expires first.
func certificates(n *NodeOverview) (p Problem, amiss bool) {
	first, left := "", certificateSoon
	for of, rest := range n.Report.CertsLeft {
		if rest < left || rest == left && of < first {
			first, left = of, rest
		}
	}
	p = Problem{Kind: CertEndsSoon, Value: left.Seconds()}
	if left < certificateLast {
		p.Kind = CertEnds
	}
	what := fmt.Sprintf("the %s of node %s", cmp.Or(certificateNames[first], first), n.Name)
	switch {
	case left <= 0:
		p.Text = what + " has expired"
	case left < time.Minute:
		p.Text = what + " expires within a minute"
	case left < 48*time.Hour:
		p.Text = fmt.Sprintf("%s expires in %s", what, left.Truncate(time.Minute))
	default:
		p.Text = fmt.Sprintf("%s expires in %d days", what, left/(24*time.Hour))
	}
	return p, first != ""
}

// span formats whole seconds without the zeros that String ends with: "10m", "30s".
func span(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
