package namespaces

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

const maxNamespaces = 1000

// Config configures Namespaces.
type Config struct {
	Shard *system.Shard
	// Divide divides a namespace's changed quotas among the data shards.
	Divide func(ctx context.Context, ns string) error
	// Undivide removes how a namespace's quotas are divided.
	Undivide func(tx *store.Tx, ns string)
	// Erase removes what a data shard still has of a namespace without queues that was removed in a version. It returns an error while
	// tasks are in transit.
	Erase func(ctx context.Context, shard uint32, ns string, removed uint64) error
	// Forget removes other rows of a namespace that is removed.
	Forget []func(tx *store.Tx, ns string)
}

// Namespaces reads and changes the namespaces.
type Namespaces struct {
	cfg   Config
	shard *system.Shard
}

// New returns the namespaces in a system shard.
func New(cfg Config) *Namespaces {
	return &Namespaces{cfg: cfg, shard: cfg.Shard}
}

// Namespace is a namespace that was created.
type Namespace struct {
	Name      string     `json:"name"`
	CreatedAt store.Time `json:"created_at"`
	CreatedBy string     `json:"created_by,omitempty"`
	// Since is the version in which the namespace was added, or its removal was undone. What a shard has of it, it has from after that: a
	// removal before it must not erase that, however late it arrives there.
	Since uint64 `json:"since,omitempty"`
	task.Quotas
	// RemovedBy is who is removing the namespace, while the shards erase what they have of it; nil: nobody. The namespace no longer exists
	// for callers.
	RemovedBy *task.Author `json:"removed_by,omitempty"`
	// RemovedIn is the version in which RemovedBy was set. A removal that was undone, or that of an earlier namespace of
	// this name, has another.
	RemovedIn uint64 `json:"removed_in,omitempty"`
}

// Call asks for a new namespace.
type Call struct {
	By     task.Author
	Name   string
	Quotas task.QuotaChange // unset ones take their defaults
}

func namespaceKey(name string) []byte { return append([]byte{system.NamespaceTable}, name...) }

// Get reads a namespace, or returns not_found if it does not exist or is being removed.
func Get(r store.Reader, name string) (Namespace, error) {
	n, ok, err := system.GetRow[Namespace](r, namespaceKey(name))
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

// MayHaveOneMore returns an error if one more would exceed a quota of the namespace.
func (n *Namespace) MayHaveOneMore(of task.Quota, field, name string, has int) error {
	most := *n.Quotas.Of(of)
	if most == 0 || int64(has) < most {
		return nil
	}
	e := task.Invalid(field, "%q would exceed the %d that namespace %q may have (%s): raise the quota with `pawl ns set %s --%s N`",
		name, most, n.Name, of, n.Name, strings.ReplaceAll(string(of), "_", "-"))
	e.Reason = string(of)
	return e
}

// namespaceFacts is what the audit log records of a namespace.
type namespaceFacts struct {
	Name string `json:"name"`
	task.Quotas
}

func onNamespace(tx *store.Tx, by task.Author, action task.Action, name string, before, after *namespaceFacts) error {
	return auditlog.RecordOn(tx, by, action, "", task.Target{Kind: task.OnNamespace, Name: name}, before, after)
}

// sameQuotas returns an error unless adding an existing namespace again asks for the quotas that it has.
func sameQuotas(n Namespace, asked task.QuotaChange) error {
	if n.Quotas.Change(asked) == n.Quotas {
		return nil
	}
	return system.Conflict("namespace %q already exists with other quotas: change them with `pawl ns set %s`", n.Name, n.Name)
}

// Add adds a namespace. An existing one is left unchanged.
//
// Errors: conflict if it exists with other quotas than the requested ones; wrong_state while a namespace of that name is being removed.
func (s *Namespaces) Add(ctx context.Context, a Call) (uint64, error) {
	version, err := system.Update(ctx, s.shard, func(tx *store.Tx) (uint64, error) {
		old, there, err := system.GetRow[Namespace](tx, namespaceKey(a.Name))
		switch {
		case err != nil:
			return 0, err
		case there && old.RemovedBy != nil:
			return 0, system.WrongState("namespace %q is still being removed: `pawl ns rm %s` completes the removal", a.Name, a.Name)
		case there || a.Name == auth.DefaultNamespace:
			old.Name = a.Name
			return system.Newest(tx), sameQuotas(old, a.Quotas)
		}
		all, err := system.ScanRows[Namespace](tx, system.NamespaceTable)
		if err != nil {
			return 0, err
		}
		if len(all) >= maxNamespaces {
			return 0, task.Invalid("namespace", "%q would exceed the limit of %d namespaces", a.Name, maxNamespaces)
		}
		n := Namespace{Name: a.Name, CreatedAt: tx.Now(), CreatedBy: a.By.Name, Since: tx.NextSeq(),
			Quotas: task.DefaultQuotas().Change(a.Quotas)}
		if err := n.Quotas.Check(); err != nil {
			return 0, err
		}
		if err := onNamespace(tx, a.By, task.NamespaceAdded, a.Name, nil, &namespaceFacts{a.Name, n.Quotas}); err != nil {
			return 0, err
		}
		tx.Set(namespaceKey(a.Name), system.EncodeRow(n))
		s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
		return tx.Index(), nil
	})
	return version, err // its shards get their shares when they get its queues
}

// SetQuotas changes some of a namespace's quotas, and returns when no shard uses more than the new ones allow. Lower ones refuse new work
// and do not affect existing work. After unavailable they may have been set, and take effect without a repeat.
func (s *Namespaces) SetQuotas(ctx context.Context, by task.Author, name string, to task.QuotaChange) (uint64, error) {
	version, err := system.Update(ctx, s.shard, func(tx *store.Tx) (uint64, error) {
		n, err := Get(tx, name)
		if err != nil {
			return 0, err
		}
		before := n.Quotas
		n.Quotas = before.Change(to)
		if err := n.Quotas.Check(); err != nil || n.Quotas == before {
			return system.Newest(tx), err
		}
		if err := onNamespace(tx, by, task.QuotasSet, name, &namespaceFacts{name, before}, &namespaceFacts{name, n.Quotas}); err != nil {
			return 0, err
		}
		tx.Set(namespaceKey(name), system.EncodeRow(n))
		s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
		return tx.Index(), nil
	})
	if err != nil {
		return 0, err
	}
	return version, s.cfg.Divide(ctx, name)
}

// Remove removes a namespace in which nothing waits, runs or is dead, together with what is kept of it: ended tasks, keys, groups
// and operations. Otherwise a later namespace of that name would inherit them. From the first moment on it no longer exists for callers. If
// the error is unavailable, repeat the call: not all shards have erased their part yet.
//
// Errors: not_found; wrong_state while it has queues, schedules or tokens, or tasks in transit between shards.
func (s *Namespaces) Remove(ctx context.Context, by task.Author, name string) (uint64, error) {
	type mark struct {
		at     uint64
		of     Namespace
		shards []uint32
	}
	marked, err := system.Update(ctx, s.shard, func(tx *store.Tx) (mark, error) {
		n, shards, err := s.markRemoved(tx, by, name)
		return mark{system.Newest(tx), n, shards}, err
	})
	if err == nil {
		_, err = s.shard.Confirm(ctx, marked.at) // from then on nothing of it reaches the shards
	}
	if err != nil {
		return 0, err
	}
	if err := s.erase(ctx, marked.of, marked.shards); err != nil {
		if errors.Is(err, task.ErrWrongState) {
			return 0, errors.Join(err, s.unmark(ctx, marked.of))
		}
		return 0, err
	}
	return system.Update(ctx, s.shard, func(tx *store.Tx) (uint64, error) {
		n, there, err := system.GetRow[Namespace](tx, namespaceKey(name))
		switch {
		case err != nil || !there || n.CreatedAt != marked.of.CreatedAt:
			return system.Newest(tx), err // another call has removed it
		case n.RemovedIn != marked.of.RemovedIn:
			return 0, system.WrongState("namespace %q was not removed: another call that removed it was refused meanwhile; repeat the call",
				name)
		}
		if err := onNamespace(tx, *n.RemovedBy, task.NamespaceRemoved, name, &namespaceFacts{name, n.Quotas}, nil); err != nil {
			return 0, err
		}
		tx.Delete(namespaceKey(name))
		s.cfg.Undivide(tx, name)
		for _, forget := range s.cfg.Forget {
			forget(tx, name)
		}
		s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
		return tx.Index(), nil
	})
}

// markRemoved hides a namespace from callers, and returns its row and the shards that may have something of it.
func (s *Namespaces) markRemoved(tx *store.Tx, by task.Author, name string) (n Namespace, shards []uint32, err error) {
	if name == auth.DefaultNamespace {
		return n, nil, system.WrongState("namespace %q can't be removed: it serves the calls that name none", name)
	}
	n, there, err := system.GetRow[Namespace](tx, namespaceKey(name))
	if err == nil && !there {
		err = task.NotFound("namespace", name)
	}
	if err != nil {
		return n, nil, err
	}
	for _, of := range []struct {
		table byte
		what  string
	}{{system.QueueTable, "queues"}, {system.CronTable, "schedules"}, {system.TokenTable, "tokens"}, {system.HookTable, "webhooks"}} {
		if first := firstIn(tx, of.table, name); first != "" {
			return n, nil, system.WrongState("namespace %q is not empty: it has %s, %q is the first: remove them first",
				name, of.what, first)
		}
	}
	settings, _, err := system.GetRow[system.Settings](tx, system.SettingsKey)
	if err == nil && n.RemovedBy == nil {
		n.RemovedBy, n.RemovedIn = &by, tx.NextSeq()
		tx.Set(namespaceKey(name), system.EncodeRow(n))
		s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
	}
	return n, system.DataShards(settings.DataShards), err
}

// unmark undoes markRemoved after a shard has refused to erase the namespace.
func (s *Namespaces) unmark(ctx context.Context, marked Namespace) error {
	_, err := system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		n, there, err := system.GetRow[Namespace](tx, namespaceKey(marked.Name))
		if err == nil && there && n.RemovedIn == marked.RemovedIn {
			n.RemovedBy, n.RemovedIn, n.Since = nil, 0, tx.NextSeq()
			tx.Set(namespaceKey(n.Name), system.EncodeRow(n))
			s.cfg.Undivide(tx, n.Name) // some shards have forgotten their shares
			s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
		}
		return struct{}{}, err
	})
	return err
}

// erase has the shards erase what they have of a namespace.
func (s *Namespaces) erase(ctx context.Context, n Namespace, shards []uint32) error {
	errs := make([]error, len(shards))
	parallel.Run(len(shards), func(i int) { errs[i] = s.cfg.Erase(ctx, shards[i], n.Name, n.RemovedIn) })
	for _, err := range errs {
		if errors.Is(err, task.ErrWrongState) {
			return err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return task.Unavailable(time.Second,
			"namespace %q is removed, but not all shards have deleted its data yet; the call may be repeated: %v", n.Name, err)
	}
	return nil
}

// firstIn returns the first name in a namespace's part of a table; "": there is none.
func firstIn(r store.Reader, table byte, ns string) (name string) {
	lo := system.Key(table, ns, "")
	hi := slices.Clone(lo)
	hi[len(hi)-1]++
	r.Scan(lo, hi, func(k, _ []byte) bool {
		name = string(k[len(lo):])
		return false
	})
	return name
}

// Info is a namespace, and what the system shard counts of it.
type Info struct {
	Namespace
	Queues    int
	Schedules int
}

// List lists the namespaces by name.
func (s *Namespaces) List(ctx context.Context) ([]Info, error) {
	return system.View(ctx, s.shard, func(r store.Reader) ([]Info, error) {
		rows, err := system.ScanRows[Namespace](r, system.NamespaceTable)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(rows, func(n Namespace) bool { return n.Name == auth.DefaultNamespace }) {
			rows = append(rows, Namespace{Name: auth.DefaultNamespace})
		}
		queues := map[string]int{}
		r.Scan([]byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(k, _ []byte) bool {
			ns, _, _ := bytes.Cut(k[1:], []byte{0})
			queues[string(ns)]++
			return true
		})
		all := make([]Info, 0, len(rows))
		for _, n := range rows {
			if n.RemovedBy == nil {
				all = append(all, Info{n, queues[n.Name], int(system.GetNumber(r,
					system.SchedulesOfKey(n.Name)))}) // #nosec G115 -- at most maxSchedules
			}
		}
		slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
		return all, nil
	})
}
