package query

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/broker/archived"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Each node has its own archive of the dead letters that left the shards while it led them. In a cluster of several nodes a place begins
// with the name of its node, and a list merges all archives by time.

type archiveArgs struct {
	Namespace, Queue, Cursor string
	Limit                    int
	Place                    string
}

// ArchiveBroker reads this node's archive.
type ArchiveBroker interface {
	Archived(ctx context.Context, ns, queue, cursor string, limit int) (broker.ArchivedPage, error)
	ArchivedAt(ns, place string) (*broker.ArchivedTask, error)
}

// Archive reads the archives of all nodes.
type Archive struct {
	forward *forward.Forwarder
	list    forward.Caller[archiveArgs, broker.ArchivedPage]
	at      forward.Caller[archiveArgs, *broker.ArchivedTask]
}

// NewArchive returns a reader of the archives.
func NewArchive(f *forward.Forwarder, b ArchiveBroker) *Archive {
	return &Archive{forward: f,
		list: forward.RegisterIdempotent(f, "archived", func(ctx context.Context, a archiveArgs) (broker.ArchivedPage, error) {
			return b.Archived(ctx, a.Namespace, a.Queue, a.Cursor, a.Limit)
		}),
		at: forward.RegisterIdempotent(f, "archived-at", func(_ context.Context, a archiveArgs) (*broker.ArchivedTask, error) {
			return b.ArchivedAt(a.Namespace, a.Place)
		}),
	}
}

// part is one node's part of a list.
type part struct {
	node forward.Node
	from string // cursor: where the list continues after what was taken; archiveEnd: at its end
	gone bool   // the node did not answer
	broker.ArchivedPage
}

// archiveEnd is the cursor of a node whose archive was read to its end.
const archiveEnd = "-"

// Archived returns a page of the archives of all nodes, newest first. It may be empty although more follow. Its cursor keeps the place in
// the archive of a node that is missing.
func (a *Archive) Archived(ctx context.Context, ns, queue, cursor string, limit int) (page verb.Partial[broker.ArchivedPage], err error) {
	parts, err := a.parts(cursor)
	if err != nil {
		return page, err
	}
	answers, errs := parallel.Ask(ctx, verb.PartTime, len(parts), func(ctx context.Context, i int) (out broker.ArchivedPage, err error) {
		if p := parts[i]; p.from != archiveEnd {
			out, err = a.list.OnNode(ctx, p.node, archiveArgs{Namespace: ns, Queue: queue, Cursor: p.from, Limit: limit})
		}
		return out, err
	})
	for i, err := range errs {
		if refused, ok := task.AsError(err); ok && refused.Code != task.CodeUnavailable {
			return page, err
		}
		if parts[i].gone = err != nil; !parts[i].gone {
			parts[i].ArchivedPage = answers[i]
			continue
		}
		page.LacksNode(parts[i].node.Name, err)
	}
	if err := page.CheckAny(len(parts)); err != nil {
		return page, err
	}
	for _, p := range parts {
		if p.Damaged != "" {
			page.LacksNode(p.node.Name, task.Unavailable(0, "has damaged records in its archive, such as %q, which were left out", p.Damaged))
		}
	}
	out, size := &page.Value, 0
	for len(out.Tasks) < limit {
		p := newest(parts)
		if p == nil {
			break
		}
		if size += p.Tasks[0].Bytes(); size > archived.MaxPageBytes && len(out.Tasks) > 0 {
			break
		}
		out.Tasks, out.Places = append(out.Tasks, p.Tasks[0]), append(out.Places, placeOn(parts, p.node, p.Places[0]))
		p.take()
	}
	out.Next = cursorOf(parts)
	return page, ctx.Err()
}

// take moves on to a part's next task.
func (p *part) take() {
	p.from = p.Places[0]
	p.Tasks, p.Places = p.Tasks[1:], p.Places[1:]
}

// newest returns the part whose next task was archived last. It returns nil at the end, or if more of a part must be read first: what
// follows there may be newer than what the others have.
func newest(parts []*part) (best *part) {
	for _, p := range parts {
		switch {
		case len(p.Tasks) == 0 && p.Next != "":
			return nil
		case len(p.Tasks) > 0 && (best == nil || p.Tasks[0].ArchivedAt.After(best.Tasks[0].ArchivedAt)):
			best = p
		}
	}
	return best
}

// placeOn returns a place for callers: with the name of its node if there are several.
func placeOn(parts []*part, node forward.Node, place string) string {
	if len(parts) == 1 {
		return place
	}
	return node.Name + ":" + place
}

// cursorOf joins the cursors of the nodes; "" if all are at their end. The cursor of a single node is that of its archive.
func cursorOf(parts []*part) string {
	var all []string
	end := true
	for _, p := range parts {
		if !p.gone && len(p.Tasks) == 0 { // it has also been read beyond the last that was taken
			p.from = cmp.Or(p.Next, archiveEnd)
		}
		end = end && (p.gone || p.from == archiveEnd)
		if p.from != "" {
			all = append(all, p.node.Name+"="+p.from)
		}
	}
	switch {
	case end:
		return ""
	case len(parts) == 1:
		return parts[0].from
	}
	return strings.Join(all, "|")
}

// parts starts a list at a cursor.
func (a *Archive) parts(cursor string) (parts []*part, err error) {
	for _, n := range a.forward.Nodes() {
		parts = append(parts, &part{node: n})
	}
	if len(parts) == 1 && !strings.Contains(cursor, "=") {
		parts[0].from = cursor
		return parts, nil
	}
	for _, one := range strings.Split(cursor, "|") {
		name, from, ok := strings.Cut(one, "=")
		i := slices.IndexFunc(parts, func(p *part) bool { return p.node.Name == name })
		switch {
		case cursor == "":
		case !ok:
			return nil, task.Invalid("cursor", "was not returned by this call")
		case i >= 0: // the archive of a removed node is gone too
			parts[i].from = from
		}
	}
	return parts, nil
}

// ArchivedAt returns an archived task of a namespace by its place. A place without a node dates from when there was only one.
func (a *Archive) ArchivedAt(ctx context.Context, ns, place string) (*broker.ArchivedTask, error) {
	nodes, inner := a.forward.Nodes(), place
	if name, rest, named := strings.Cut(place, ":"); named && strings.Contains(rest, ":") {
		if cluster.CheckName(name) != nil {
			return nil, archived.BadPlace(place)
		}
		inner = rest
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n forward.Node) bool { return n.Name != name })
	}
	for _, n := range nodes {
		t, err := a.at.OnNode(ctx, n, archiveArgs{Namespace: ns, Place: inner})
		if !errors.Is(err, task.ErrNotFound) {
			return t, err
		}
	}
	return nil, task.NotFound("archived task", place)
}
