package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/pawltype"
)

func newVerify(a *app) *cobra.Command {
	var only []uint
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "verify", Short: "Compare the replicas of shards, and check their indexes", Args: cli.NoArgs,
		Long: `Compare the states of each shard's replicas at the same log entry, and check the leader's indexes and counters
against its tasks. Every node that holds a replica reads all rows, while the cluster keeps serving. A shard that
doesn't answer within --timeout is skipped.

Exit status 0 means that every shard was checked, with all its replicas, and is sound.`,
		Example: "  pawl verify\n  pawl verify --shard 3 -o json",
	}
	cmd.Flags().UintSliceVar(&only, "shard", nil, "only this shard; repeatable (default all)")
	cli.PeriodVar(cmd.Flags(), &timeout, "timeout", 10*time.Minute, "how long to wait for each shard")
	cmd.RunE = a.Call(func(cmd *cobra.Command, client *pawl.Client, _ []string) error {
		ctx, operator := cmd.Context(), a.Admin(client)
		if timeout <= 0 {
			return cli.Usage("--timeout %s is not positive", timeout)
		}
		shards, err := shardsToVerify(ctx, operator, only)
		if err != nil {
			return err
		}
		found, err := a.verify(ctx, operator, shards, timeout)
		if err != nil {
			return err
		}
		shown := struct {
			Items []verificationView `json:"items"`
		}{found}
		if err := a.Print(shown, func(w io.Writer) { writeVerifications(w, found) }); err != nil {
			return err
		}
		return verdictOf(found)
	})
	return cmd
}

// shardsToVerify returns the requested shards, or all.
func shardsToVerify(ctx context.Context, operator admin.Client, only []uint) (shards []uint32, err error) {
	for _, n := range only {
		if n > math.MaxUint32 {
			return nil, cli.Usage("--shard %d is not the number of a shard", n)
		}
		shards = append(shards, uint32(n))
	}
	if len(only) > 0 {
		return shards, nil
	}
	info, err := operator.Cluster().Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range info.Shards {
		shards = append(shards, s.Shard)
	}
	return shards, nil
}

// verify checks one shard after another, since every check makes the shard's nodes read all of its rows. A failure does
// not keep it from checking the others.
func (a *app) verify(ctx context.Context, operator admin.Client, shards []uint32, timeout time.Duration) ([]verificationView, error) {
	bar := a.Progress("verified", len(shards))
	defer bar.Done()
	found := make([]verificationView, len(shards))
	for i, shard := range shards {
		bar.Tell(i, "waiting for "+shardNames([]uint32{shard}))
		v, err := verifyOne(ctx, operator, shard, timeout)
		switch {
		case err == nil:
			found[i] = viewVerification(v)
		case ctx.Err() != nil, errors.Is(err, pawltype.ErrInvalidArgument), errors.Is(err, pawltype.ErrNotFound):
			return nil, err
		default:
			found[i] = verificationView{Shard: shard, Replicas: []hashView{}, Error: cli.OneLine(err)}
		}
		bar.Set(i + 1)
	}
	return found, nil
}

func verifyOne(ctx context.Context, operator admin.Client, shard uint32, timeout time.Duration) (*admin.Verification, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	v, err := operator.Cluster().VerifyShard(limited, shard)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%s did not answer within %s: %w", shardNames([]uint32{shard}), text.Period(timeout), err)
	}
	return v, err
}

type verificationView struct {
	Shard    uint32     `json:"shard"`
	Index    uint64     `json:"index"`
	Rows     int64      `json:"rows"`
	Replicas []hashView `json:"replicas"`
	Equal    bool       `json:"equal"`
	Problems []string   `json:"problems,omitempty"`
	Error    string     `json:"error,omitempty"` // why it was not checked
}

type hashView struct {
	Node string `json:"node"`
	Hash string `json:"hash,omitempty"`
}

func viewVerification(v *admin.Verification) verificationView {
	out := verificationView{Shard: v.Shard, Index: v.Index, Rows: v.Rows, Replicas: []hashView{}, Equal: v.Equal, Problems: v.Problems}
	for _, r := range v.Replicas {
		out.Replicas = append(out.Replicas, hashView(r))
	}
	return out
}

// broken reports whether a shard was found to be damaged.
func (v verificationView) broken() bool { return v.Error == "" && (!v.Equal || len(v.Problems) > 0) }

// missing returns the nodes whose replicas gave no hash.
func (v verificationView) missing() (nodes []string) {
	for _, r := range v.Replicas {
		if r.Hash == "" {
			nodes = append(nodes, r.Node)
		}
	}
	return nodes
}

// whole reports whether a shard was checked with all its replicas.
func (v verificationView) whole() bool { return v.Error == "" && len(v.missing()) == 0 }

func (v verificationView) result() string {
	switch {
	case v.Error != "":
		return "not verified"
	case !v.Equal:
		return "BROKEN: replicas differ"
	case len(v.Problems) > 0:
		return "BROKEN: numbers do not agree"
	case !v.whole():
		return "not compared with " + strings.Join(v.missing(), ", ")
	}
	return "sound"
}

func writeVerifications(w io.Writer, found []verificationView) {
	rows := make([][]string, len(found))
	var details []string
	for i, v := range found {
		name := shardNames([]uint32{v.Shard})
		nodes := make([]string, len(v.Replicas))
		hashes := make([]string, len(v.Replicas))
		for j, r := range v.Replicas {
			nodes[j] = r.Node
			hashes[j] = r.Node + " has " + orDash(r.Hash)
		}
		index, size := "-", "-"
		if v.Error == "" {
			index, size = strconv.FormatUint(v.Index, 10), strconv.FormatInt(v.Rows, 10)
		} else {
			details = append(details, name+": "+v.Error)
		}
		if v.Error == "" && !v.Equal {
			details = append(details, fmt.Sprintf("%s: after entry %d %s", name, v.Index, strings.Join(hashes, ", ")))
		}
		for _, p := range v.Problems {
			details = append(details, name+": "+p)
		}
		rows[i] = []string{strconv.FormatUint(uint64(v.Shard), 10), index, size, orDash(strings.Join(nodes, " ")), v.result()}
	}
	text.Columns(w, "SHARD|ENTRY|ROWS|REPLICAS|RESULT", rows)
	for _, d := range details {
		fmt.Fprintln(w, text.Printable(d))
	}
}

// verdictOf returns an error unless every shard was checked and found sound.
func verdictOf(found []verificationView) error {
	var broken, partly []uint32
	for _, v := range found {
		switch {
		case v.broken():
			broken = append(broken, v.Shard)
		case !v.whole():
			partly = append(partly, v.Shard)
		}
	}
	switch {
	case len(broken) > 0 && len(partly) > 0:
		return fmt.Errorf("broken: %s; not verified in full: %s", shardNames(broken), shardNames(partly))
	case len(broken) > 0:
		return fmt.Errorf("broken: %s", shardNames(broken))
	case len(partly) > 0:
		return fmt.Errorf("not verified in full: %s", shardNames(partly))
	}
	return nil
}
