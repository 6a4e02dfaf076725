package cluster

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Quotas of a namespace are part of its row; that of the default one is there once it has some. Queues and schedules are counted here.
// What tasks may use is shared out to the data shards (division.go), and rates hold at each node's door.

// namespaceOf reads a namespace, if it is there and is not being removed.
func namespaceOf(r store.Reader, name string) (Namespace, error) {
	n, ok, err := getRow[Namespace](r, namespaceKey(name))
	switch {
	case err != nil:
		return n, err
	case !ok && name == auth.DefaultNamespace:
		n.Name = name
	case !ok || n.RemovedBy != nil:
		return n, task.NotFound("namespace", name)
	}
	return n, nil
}

// SetQuotas changes some of a namespace's quotas, and answers when no shard goes by more than the new ones. Lower ones refuse new work
// and leave alone what is there. After unavailable they may have been set, and go on by themselves.
func (c *Control) SetQuotas(ctx context.Context, by task.Author, name string, to task.QuotaChange) (uint64, error) {
	version, err := update(ctx, c, func(tx *store.Tx) (uint64, error) {
		if err := mayHaveTokens(tx); err != nil {
			return 0, err
		}
		n, err := namespaceOf(tx, name)
		if err != nil {
			return 0, err
		}
		before := n.Quotas
		n.Quotas = before.Change(to)
		if err := n.Quotas.Check(); err != nil || n.Quotas == before {
			return tx.Index(), err
		}
		if err := onNamespace(tx, by, task.QuotasSet, name, &namespaceFacts{name, before}, &namespaceFacts{name, n.Quotas}); err != nil {
			return 0, err
		}
		tx.Set(namespaceKey(name), encodeRow(n))
		c.note(tx, change{access: true})
		return tx.Index(), nil
	})
	if err != nil {
		return 0, err
	}
	return version, c.divide(ctx, name, 0)
}

// mayHaveOneMore refuses what would be more than a quota of the namespace allows.
func (n *Namespace) mayHaveOneMore(of task.Quota, field, name string, has int) error {
	most := *n.Quotas.Of(of)
	if most == 0 || int64(has) < most {
		return nil
	}
	e := task.Invalid(field, "%q would be one more than the %d that namespace %q may have (%s): `pawl ns set %s --%s N` raises that",
		name, most, n.Name, of, n.Name, strings.ReplaceAll(string(of), "_", "-"))
	e.Reason = string(of)
	return e
}

func schedulesOfKey(ns string) []byte { return append([]byte{metaTable, 'T'}, ns...) }

// NamespaceInfo is a namespace, and what of it the system shard counts.
type NamespaceInfo struct {
	Namespace
	Queues    int
	Schedules int
}

// Namespaces lists those that are there, by name.
func (c *Control) Namespaces(ctx context.Context) ([]NamespaceInfo, error) {
	return view(ctx, c, func(r store.Reader) ([]NamespaceInfo, error) {
		rows, err := scanRows[Namespace](r, namespaceTable)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(rows, func(n Namespace) bool { return n.Name == auth.DefaultNamespace }) {
			rows = append(rows, Namespace{Name: auth.DefaultNamespace})
		}
		queues := map[string]int{}
		r.Scan([]byte{queueTable}, []byte{queueTable + 1}, func(k, _ []byte) bool {
			ns, _, _ := bytes.Cut(k[1:], []byte{0})
			queues[string(ns)]++
			return true
		})
		all := make([]NamespaceInfo, 0, len(rows))
		for _, n := range rows {
			if n.RemovedBy == nil {
				all = append(all, NamespaceInfo{n, queues[n.Name], int(getNumber(r, schedulesOfKey(n.Name)))}) // #nosec G115 -- at most maxSchedules
			}
		}
		slices.SortFunc(all, func(a, b NamespaceInfo) int { return strings.Compare(a.Name, b.Name) })
		return all, nil
	})
}

// namespaceFacts is what operators say of a namespace.
type namespaceFacts struct {
	Name string `json:"name"`
	task.Quotas
}

func onNamespace(tx *store.Tx, by task.Author, action task.Action, name string, before, after *namespaceFacts) error {
	return recordOn(tx, by, action, "", task.Target{Kind: task.OnNamespace, Name: name}, before, after)
}

// sameQuotas says whether a namespace that is there may be made again by the same call.
func sameQuotas(n Namespace, asked task.QuotaChange) error {
	if n.Quotas.Change(asked) == n.Quotas {
		return nil
	}
	return conflict("namespace %q: it is there, with other quotas: `pawl ns set %s` changes them", n.Name, n.Name)
}
