package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/internal/humanize"
)

func newClusterAdd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "add [NAME]", Short: "Show how to start a new node", Args: cobra.MaximumNArgs(1),
		Long: `Show the command that starts a new node. A node joins when it starts, through the addresses given with
--join, and soon gets its share of replicas. Without NAME it gets the first free name.`,
		Example: "  pawl cluster add\n  pawl cluster add n4 -o json",
	}
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, args []string) error {
		info, err := a.Admin(client).Cluster().Status(cmd.Context())
		if err != nil {
			return err
		}
		name := freeName(info)
		if len(args) > 0 {
			name = args[0]
		}
		shown, err := viewAdd(info, name)
		if err != nil {
			return err
		}
		if err := a.Print(shown, func(w io.Writer) { fmt.Fprintln(w, shown.Command) }); err != nil || a.Format != "table" {
			return err
		}
		fmt.Fprintf(a.Err, "HOST is an address of the new machine. The three files are its certificate: see 'pawl cert node --help'.\n"+
			"Omit --peer-cert, --peer-key and --peer-ca if the other nodes have none.\n")
		if shown.Replaces {
			fmt.Fprintf(a.Err, "node %q is not reachable: the new one takes its place, and the replicas of the old one are recreated.\n",
				name)
		}
		return nil
	})
	return cmd
}

type addView struct {
	Node     string   `json:"node"`
	Join     []string `json:"join"`
	Command  string   `json:"command"`
	Replaces bool     `json:"replaces,omitempty"` // an unreachable node has that name
}

var errNoPeers = errors.New("no node of this cluster has an address for other nodes: restart one with --peer-listen HOST:PORT, then run " +
	"this command again")

// viewAdd returns how to start a node that joins the running ones.
func viewAdd(info *admin.ClusterStatus, name string) (addView, error) {
	v := addView{Node: name}
	for _, n := range info.Nodes {
		switch {
		case n.Name == name && n.Alive:
			return v, fmt.Errorf("node %q is running as number %d: choose another name", name, n.Number)
		case n.Name == name:
			v.Replaces = true
		case n.Alive && n.PeerAddress != "":
			v.Join = append(v.Join, n.PeerAddress)
		}
	}
	if len(v.Join) == 0 {
		return v, errNoPeers
	}
	v.Command = fmt.Sprintf("pawl serve --node %s --data ./pawl-data --listen HOST:7295 --peer-listen HOST:7296 --join %s "+
		"--peer-cert %s --peer-key %s --peer-ca ca.crt", humanize.ShellWord(name), humanize.ShellWord(strings.Join(v.Join, ",")),
		humanize.ShellWord(name+".crt"), humanize.ShellWord(name+".key"))
	return v, nil
}

// freeName returns the first of n1, n2 and so on that no node has.
func freeName(info *admin.ClusterStatus) string {
	for i := 1; ; i++ {
		name := fmt.Sprintf("n%d", i)
		if !slices.ContainsFunc(info.Nodes, func(n admin.Node) bool { return n.Name == name }) {
			return name
		}
	}
}
