package test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// network is a separate network for the servers of a cluster: each has a network namespace with one address, on a
// bridge on which this machine has an address for clients.
type network struct {
	t      *testing.T
	subnet string // "10.77.3"
	bridge string
}

const (
	apiPort, peerPort = 7295, 7296
	// clientsAt is this machine's number in the network. Servers have numbers from 1.
	clientsAt = 254
)

// newNetwork creates the network, or skips the test if that is not permitted.
func newNetwork(t *testing.T) *network {
	t.Helper()
	skipIfShort(t)
	pid := os.Getpid()
	v := &network{t: t, subnet: fmt.Sprintf("10.77.%d", pid%250), bridge: fmt.Sprintf("pawl%d", pid)}
	t.Cleanup(v.remove)
	commands := []string{
		fmt.Sprintf("link add %s type bridge", v.bridge),
		fmt.Sprintf("addr add %s.%d/24 dev %s", v.subnet, clientsAt, v.bridge),
		fmt.Sprintf("link set %s up", v.bridge),
	}
	for n := 1; n <= clusterSize; n++ {
		commands = append(commands,
			"netns add "+v.space(n),
			fmt.Sprintf("link add %s type veth peer name eth0 netns %s", v.plug(n), v.space(n)),
			fmt.Sprintf("link set %s master %s up", v.plug(n), v.bridge),
			fmt.Sprintf("-n %s addr add %s/24 dev eth0", v.space(n), v.ip(n)),
			fmt.Sprintf("-n %s link set eth0 up", v.space(n)),
			fmt.Sprintf("-n %s link set lo up", v.space(n)))
	}
	for _, c := range commands {
		if err := ip(c); err != nil {
			t.Skipf("this test needs root and the command ip to create networks: %v", err)
		}
	}
	return v
}

// remove undoes what newNetwork has done, however far it got.
func (v *network) remove() {
	for n := 1; n <= clusterSize; n++ {
		_ = ip("link del " + v.plug(n)) // otherwise it lives as long as anything of the namespace
		_ = ip("netns del " + v.space(n))
	}
	_ = ip("link del " + v.bridge)
}

// ip runs the ip command.
func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w %s", args, err, out)
	}
	return nil
}

func (v *network) space(n int) string { return fmt.Sprintf("%s-%d", v.bridge, n) }
func (v *network) plug(n int) string  { return fmt.Sprintf("%sp%d", v.bridge, n) }
func (v *network) ip(n int) string    { return fmt.Sprintf("%s.%d", v.subnet, n) }

// do runs an ip command that must succeed.
func (v *network) do(format string, args ...any) {
	v.t.Helper()
	if err := ip(fmt.Sprintf(format, args...)); err != nil {
		v.t.Fatal(err)
	}
}

// unplug disconnects a server from the network, and plug reconnects it.
func (v *network) unplug(n int) { v.do("link set %s down", v.plug(n)) }
func (v *network) replug(n int) { v.do("link set %s up", v.plug(n)) }

// mute drops everything that a server sends to another, and unmute ends that.
func (v *network) mute(from, to int) {
	v.do("-n %s route add blackhole %s/32", v.space(from), v.ip(to))
}
func (v *network) unmute(from, to int) {
	v.do("-n %s route del blackhole %s/32", v.space(from), v.ip(to))
}

// newCluster is newCluster on the network.
func (v *network) newCluster() *nodes {
	v.t.Helper()
	var peers []string
	for n := 1; n <= clusterSize; n++ {
		peers = append(peers, fmt.Sprintf("%s:%d", v.ip(n), peerPort))
	}
	c := &nodes{t: v.t}
	for i, peer := range peers {
		name := fmt.Sprintf("n%d", i+1)
		s := newServer(v.t, "--node", name, "--peer-listen", peer, "--join", strings.Join(peers, ","),
			"--insecure-listen-without-auth", "--insecure-peers-in-plaintext")
		s.addr = fmt.Sprintf("%s:%d", v.ip(i+1), apiPort)
		s.under = []string{"ip", "netns", "exec", v.space(i + 1)}
		c.all = append(c.all, &member{s, name})
	}
	c.form()
	return c
}
