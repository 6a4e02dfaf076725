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

// The quotas of a namespace are part of its row; the default namespace has a row once it has quotas. Queues and schedules are counted here.
// What tasks may use is divided among the data shards (division.go), and rates are enforced by each node's gateway.

// namespaceOf reads a namespace, or returns not_found if it does not exist or is being removed.
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

// SetQuotas changes some of a namespace's quotas, and returns when no shard uses more than the new ones allow. Lower ones refuse new work
// and do not affect existing work. After unavailable they may have been set, and take effect without a repeat.
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

// mayHaveOneMore returns an error if one more would exceed a quota of the namespace.
func (n *Namespace) mayHaveOneMore(of task.Quota, field, name string, has int) error {
	most := *n.Quotas.Of(of)
	if most == 0 || int64(has) < most {
		return nil
	}
	e := task.Invalid(field, "%q would exceed the %d that namespace %q may have (%s): raise the quota with `pawl ns set %s --%s N`",
		name, most, n.Name, of, n.Name, strings.ReplaceAll(string(of), "_", "-"))
	e.Reason = string(of)
	return e
}

func schedulesOfKey(ns string) []byte { return append([]byte{metaTable, 'T'}, ns...) }

// NamespaceInfo is a namespace, and what the system shard counts of it.
type NamespaceInfo struct {
	Namespace
	Queues    int
	Schedules int
}

// Namespaces lists the namespaces by name.
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

// namespaceFacts is what the audit log records of a namespace.
type namespaceFacts struct {
	Name string `json:"name"`
	task.Quotas
}

func onNamespace(tx *store.Tx, by task.Author, action task.Action, name string, before, after *namespaceFacts) error {
	return recordOn(tx, by, action, "", task.Target{Kind: task.OnNamespace, Name: name}, before, after)
}

// sameQuotas returns an error unless adding an existing namespace again asks for the quotas that it has.
func sameQuotas(n Namespace, asked task.QuotaChange) error {
	if n.Quotas.Change(asked) == n.Quotas {
		return nil
	}
	return conflict("namespace %q already exists with other quotas: change them with `pawl ns set %s`", n.Name, n.Name)
}
