package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/pawlq/pawl"
	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/cmd/internal/text"
	"github.com/pawlq/pawl/cmd/pawl/internal/view"
	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/pawltype"
)

func newArchiveRestore(a *app) *cobra.Command {
	var from archives
	var all, dryRun bool
	cmd := &cobra.Command{
		Use: "restore [ID...]", Short: "Enqueue archived dead letters again, as new tasks",
		Long: `Enqueue archived dead letters again, as new tasks that are due now, in the order in which they were first
enqueued. Give ids, --queue, or --all; only those of your namespace are restored. The header restored_from
of a new task names the old one. A dead letter is restored once within a year: if it was restored before,
the command prints the id of that task. The command names those that it can't restore, and restores the
others. A task that still exists, as a dead letter or replayed, is not restored. If a refusal may pass, such
as that of a full queue, the command ends, so that no task overtakes an earlier one of its key: repeat it
later.`,
		Example: "  pawl dlq archive restore --from /var/lib/pawl 0199f3c2-…\n" +
			"  pawl dlq archive restore --from n1/archive --from n2/archive --queue mail --dry-run",
	}
	from.add(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all archived dead letters of the namespace, in every queue")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be restored")
	cmd.RunE = a.Run(func(cmd *cobra.Command, ids []string) error {
		switch given := len(ids) > 0; {
		case given && (all || from.queue != ""), all && from.queue != "":
			return cli.Usage("give ids, --queue or --all, and only one of them")
		case !given && !all && from.queue == "":
			return cli.Usage("give ids, --queue or --all")
		}
		client, err := a.DialWithoutKeys(pawl.DialOptions{NoRouting: true})
		if err != nil {
			return err
		}
		defer client.Close()
		r := &restoring{app: a, client: client, dryRun: dryRun}
		whole, err := r.choose(cmd.Context(), &from, ids)
		if err == nil {
			err = r.restore(cmd.Context())
		}
		if r.results != nil {
			err = errors.Join(r.print(), err)
		}
		if err == nil && len(r.results) == 0 {
			return errors.New("no archived dead letter matches: nothing was restored")
		}
		if err == nil && (!whole || r.failed) {
			return cli.ErrSilent
		}
		return err
	})
	return cmd
}

// restoring restores archived dead letters.
type restoring struct {
	*app
	client  *pawl.Client
	dryRun  bool
	chosen  []archived // in the order in which they were enqueued
	results []restoredView
	failed  bool
}

// restoredView is what became of an archived dead letter.
type restoredView struct {
	From      string `json:"restored_from"`
	Queue     string `json:"queue,omitempty"`
	TaskID    string `json:"task_id,omitempty"` // none: it was not restored
	Duplicate bool   `json:"duplicate"`         // it was restored before
	Error     string `json:"error,omitempty"`
}

// choose finds the dead letters to restore, each once.
func (r *restoring) choose(ctx context.Context, from *archives, ids []string) (whole bool, err error) {
	me, err := r.Admin(r.client).Access().WhoAmI(ctx)
	if err != nil {
		return false, err
	}
	wanted, found := map[string]bool{}, map[string]archived{}
	for _, id := range ids {
		wanted[id] = true
	}
	whole, err = from.read(r.app, me.Namespace, func(one archived) {
		if before, twice := found[one.id]; (len(ids) == 0 || wanted[one.id]) && (!twice || before.ended.Before(one.ended)) {
			found[one.id] = one
		}
	})
	if err != nil {
		return false, err
	}
	r.results = []restoredView{}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if _, ok := found[id]; !ok {
			r.add(archived{id: id}, "", false, fmt.Errorf("not in these archives, or not in namespace %q", me.Namespace))
		}
	}
	r.chosen = slices.SortedFunc(maps.Values(found), func(x, y archived) int {
		return cmp.Or(x.created.Compare(y.created), x.ended.Compare(y.ended), cmp.Compare(x.id, y.id))
	})
	return whole, nil
}

// add adds a result, and names what failed.
func (r *restoring) add(one archived, id string, duplicate bool, err error) {
	v := restoredView{From: one.id, Queue: one.queue, TaskID: id, Duplicate: duplicate}
	switch {
	case err != nil:
		v.Error, r.failed = cli.OneLine(err), true
		fmt.Fprintf(r.Err, "%s: %s\n", text.Printable(one.id), text.Printable(v.Error))
	case duplicate:
		fmt.Fprintf(r.Err, "%s was restored before, as task %s\n", one.id, id)
	}
	r.results = append(r.results, v)
}

// Bounds of a batch: what is sent at once is in memory, and is one request.
const (
	restoreTasks = 500
	restoreBytes = 2 << 20
)

// lane is a queue and a key: the tasks of one may have to run in their order.
type lane struct{ queue, key string }

// restoreBatch is what is sent at once: of each lane one task, since a broker may accept the second and refuse the first.
type restoreBatch struct {
	chosen []archived
	items  []pawl.Item
	lanes  map[lane]bool
	size   int
}

// fits reports whether the batch has room for one more.
func (b *restoreBatch) fits(s *pawlv1.TaskSpec) bool {
	return len(b.items) == 0 || len(b.items) < restoreTasks && b.size+proto.Size(s) <= restoreBytes &&
		(s.Key == nil || !b.lanes[lane{s.GetQueue(), s.GetKey()}])
}

func (b *restoreBatch) add(one archived, s *pawlv1.TaskSpec) {
	if b.lanes == nil {
		b.lanes = map[lane]bool{}
	}
	b.chosen, b.items, b.size = append(b.chosen, one), append(b.items, view.Item(s)), b.size+proto.Size(s)
	b.lanes[lane{s.GetQueue(), s.GetKey()}] = true
}

// restore restores what was chosen. It ends at the first refusal that passes: the next tasks might overtake the refused
// one, and a key's order would be lost.
func (r *restoring) restore(ctx context.Context) error {
	before := len(r.results)
	queues := map[string]error{}
	b := &restoreBatch{}
	err := func() error {
		for _, one := range r.chosen {
			spec, err := r.read(ctx, one, queues)
			switch {
			case err != nil && passes(err):
				return err
			case err != nil:
				r.add(one, "", false, err)
				continue
			}
			if !b.fits(spec) {
				if err := r.send(ctx, b); err != nil {
					return err
				}
			}
			b.add(one, spec)
		}
		return r.send(ctx, b)
	}()
	if err != nil {
		return fmt.Errorf("%d of %d dead letters were not tried; repeat the command, which restores each once: %w",
			len(r.chosen)-(len(r.results)-before), len(r.chosen), err)
	}
	return nil
}

// passes reports whether the same request may succeed later.
func passes(err error) bool {
	for _, code := range []error{pawltype.ErrQueueFull, pawltype.ErrRateLimited, pawltype.ErrUnavailable, pawltype.ErrClosed,
		context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

// read reads a dead letter and returns the request that restores it. A task without a queue would create one, with default settings.
func (r *restoring) read(ctx context.Context, one archived, queues map[string]error) (*pawlv1.TaskSpec, error) {
	missing, asked := queues[one.queue]
	if !asked {
		if _, missing = r.Admin(r.client).Queues().Get(ctx, one.queue); errors.Is(missing, pawltype.ErrNotFound) {
			missing = fmt.Errorf("queue %q does not exist any more: create it first", one.queue)
		}
		queues[one.queue] = missing
	}
	if missing != nil {
		return nil, missing
	}
	switch there, err := r.client.Task(ctx, one.id); {
	case err == nil && there.State != pawltype.StateDiscarded: // it has been replayed, or is not removed yet
		return nil, fmt.Errorf("the task is still there, and is %s: it would run twice", there.State)
	case err != nil && !errors.Is(err, pawltype.ErrNotFound):
		return nil, err
	}
	record, err := one.Read()
	if err != nil {
		return nil, err
	}
	if record.Parent != nil {
		fmt.Fprintf(r.Err, "%s is restored without the result of the task that it followed\n", one.id)
	}
	spec, err := restoredSpec(&record)
	if err != nil {
		return nil, err
	}
	for _, name := range fitHeaders(spec.Headers) {
		fmt.Fprintf(r.Err, "%s is restored without the header %s: the task has the maximum of headers\n", one.id, name)
	}
	return spec, nil
}

// fitHeaders removes the headers of a restoration if there are too many with them, and returns their names.
func fitHeaders(headers map[string]string) (removed []string) {
	limits := task.DefaultLimits()
	for _, name := range []string{headerRestoredKey, headerRestoredFrom} {
		size := 0
		for k, v := range headers {
			size += len(k) + len(v)
		}
		if _, has := headers[name]; has && (len(headers) > limits.Headers || size > limits.HeaderBytes) {
			delete(headers, name)
			removed = append(removed, name)
		}
	}
	return removed
}

// send enqueues a batch, and empties it. It returns an error if the next one must not be sent.
func (r *restoring) send(ctx context.Context, b *restoreBatch) error {
	batch, items := b.chosen, b.items
	*b = restoreBatch{}
	if r.dryRun {
		for _, one := range batch {
			r.add(one, "", false, nil)
		}
		return nil
	}
	results, err := r.client.EnqueueBatch(ctx, items)
	for i, result := range results {
		if result.Err != nil {
			r.add(batch[i], "", false, result.Err)
			if passes(result.Err) {
				err = cmp.Or(err, result.Err)
			}
			continue
		}
		r.add(batch[i], result.Ref.ID, result.Ref.Duplicate, nil)
	}
	return err
}

func (r *restoring) print() error {
	return r.Print(struct {
		DryRun  bool           `json:"dry_run"`
		Results []restoredView `json:"results"`
	}{r.dryRun, r.results}, func(w io.Writer) {
		n := 0
		for _, v := range r.results {
			if v.TaskID != "" {
				fmt.Fprintln(w, v.TaskID)
			}
			if v.Error == "" {
				n++
			}
		}
		if r.dryRun {
			fmt.Fprintf(w, "%s would be restored\n", text.Count(int64(n), "task"))
		}
	})
}

// How a restored task differs from the dead letter.
const (
	headerRestoredFrom = "restored_from"            // its id
	headerRestoredKey  = "restored_idempotency_key" // its idempotency key, if it had one
	restoredPrefix     = "restored:"                // of its idempotency key, before the id
	restoredOnce       = task.MaxHold
)

// restoredSpec returns the request that enqueues a dead letter again. Its idempotency key is derived from the old id,
// so that the dead letter is restored once. If another task holds its unique key, it is refused.
func restoredSpec(r *archive.Record) (*pawlv1.TaskSpec, error) {
	s, err := archivedSpec(&r.Task)
	if err != nil {
		return nil, err
	}
	s.Headers = maps.Clone(s.Headers)
	if s.Headers == nil {
		s.Headers = map[string]string{}
	}
	// A restored task that died too keeps the first key: its own is derived.
	before, again := s.Headers[headerRestoredFrom]
	if r.IdempotencyKey != "" && !(again && strings.HasSuffix(r.IdempotencyKey, restoredPrefix+before)) {
		s.Headers[headerRestoredKey] = r.IdempotencyKey
	}
	s.Headers[headerRestoredFrom] = r.ID
	once := restoredPrefix + r.ID
	if key := cmp.Or(s.GetKey(), s.GetUnique().GetKey()); key != "" {
		once = task.Beside(key, once) // a queue in several shards takes no task with keys in different slots
	}
	s.IdempotencyKey, s.IdempotencyTtl = &once, durationpb.New(restoredOnce)
	if s.Unique != nil {
		s.Unique.OnConflict = pawlv1.OnConflict_ON_CONFLICT_REJECT
	}
	return s, nil
}

// archivedSpec returns the request for an archived task, whose fields are those of the API except for the payloads.
func archivedSpec(t *archive.Task) (*pawlv1.TaskSpec, error) {
	body, err := json.Marshal(withoutPayloads(*t))
	if err != nil {
		return nil, err
	}
	s := &pawlv1.TaskSpec{}
	if err := apijson.Decode("task", body, s); err != nil {
		return nil, fmt.Errorf("the record is damaged: %w", err)
	}
	putPayloads(s, t)
	return s, nil
}

func withoutPayloads(t archive.Task) archive.Task {
	t.Payload, t.Then = nil, slices.Clone(t.Then)
	for i := range t.Then {
		t.Then[i] = withoutPayloads(t.Then[i])
	}
	return t
}

func putPayloads(s *pawlv1.TaskSpec, t *archive.Task) {
	s.Payload = t.Payload
	for i := range t.Then {
		putPayloads(s.Then[i], &t.Then[i])
	}
}
