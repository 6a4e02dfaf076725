package pawl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

// waitStep is how long one call waits for the end of a task; Wait makes as many as it takes.
const waitStep = 30 * time.Second

// errWaitCutShort: the broker, perhaps as it shuts down, answered long before the wait was over.
var errWaitCutShort = errors.New("wait cut short")

// Task gives what the broker knows of a task, or ErrNotFound.
func (c *Client) Task(ctx context.Context, id string) (*TaskInfo, error) {
	return c.task(ctx, id, 0)
}

// TaskStale is Task from any replica of the task's shard, which may lag, or be cut off from the others: age says how long
// ago at most it was so. It works while the shard has no leader.
func (c *Client) TaskStale(ctx context.Context, id string) (t *TaskInfo, age time.Duration, err error) {
	resp, err := call(ctx, c, true, c.producer.GetTask, &pawlv1.GetTaskRequest{TaskId: id, Consistency: pawlv1.Consistency_CONSISTENCY_STALE})
	if err != nil {
		return nil, 0, fmt.Errorf("task %q: %w", id, err)
	}
	return infoOf(resp.GetTask()), resp.GetAge().AsDuration(), nil
}

// Wait waits until the task has ended, however long that takes, or ctx ends. If the task ended otherwise than by success
// the error is an *EndedError, beside the task.
func (c *Client) Wait(ctx context.Context, id string) (*TaskInfo, error) {
	for try := 0; ; try++ {
		start := time.Now()
		t, err := c.task(ctx, id, waitStep)
		if err != nil {
			return nil, err
		}
		if t.State == StateSucceeded {
			return t, nil
		}
		if t.State.Ended() {
			return t, &EndedError{Task: t}
		}
		if time.Since(start) >= time.Second {
			try = 0
		} else if err := c.pause(ctx, try, errWaitCutShort); err != nil {
			return nil, fmt.Errorf("task %q: %w", id, err)
		}
	}
}

func (c *Client) task(ctx context.Context, id string, wait time.Duration) (*TaskInfo, error) {
	resp, err := call(ctx, c, true, c.producer.GetTask, &pawlv1.GetTaskRequest{TaskId: id, Wait: durationOrNil(wait)})
	if err != nil {
		return nil, fmt.Errorf("task %q: %w", id, err)
	}
	return infoOf(resp.GetTask()), nil
}

// Cancel ends a task that has not ended; the context of a running handler ends with ErrCancelled. It may be repeated: a task
// that is cancelled already is answered like the first time. One that has ended otherwise is ErrWrongState.
func (c *Client) Cancel(ctx context.Context, id, reason string) (*TaskInfo, error) {
	resp, err := operate(ctx, c.Admin(), true, c.producer.CancelTask, &pawlv1.CancelTaskRequest{TaskId: id, Reason: reason})
	if err != nil {
		return nil, fmt.Errorf("cancel %q: %w", id, err)
	}
	return infoOf(resp.GetTask()), nil
}

// Change is what Update changes of a task; zero fields stay as they are.
type Change struct {
	RunAt       time.Time
	Priority    Priority
	Payload     any // encoded as JSON; nil: as it is
	MaxAttempts int
	// IfETag is the ETag of the task that the change was made from; "": whatever it is by now.
	IfETag string
}

// Update changes a task that is not claimed and has not ended; any other is ErrWrongState. If the change names an ETag and the task has
// another one, because somebody else has changed it, that is ErrConflict, unless it is as asked already.
func (c *Client) Update(ctx context.Context, id string, change Change) (*TaskInfo, error) {
	req := &pawlv1.UpdateTaskRequest{TaskId: id, RunAt: timestampOrNil(change.RunAt), MaxAttempts: clampInt32(change.MaxAttempts), IfEtag: change.IfETag}
	var err error
	if req.Priority, err = change.Priority.proto(); err != nil {
		return nil, fmt.Errorf("update %q: %w", id, err)
	}
	if change.Payload != nil {
		payload, err := json.Marshal(change.Payload)
		if err != nil {
			return nil, fmt.Errorf("update %q: payload: %w", id, err)
		}
		req.Payload = payload
	}
	resp, err := operate(ctx, c.Admin(), true, c.producer.UpdateTask, req)
	if err != nil {
		return nil, fmt.Errorf("update %q: %w", id, err)
	}
	return infoOf(resp.GetTask()), nil
}

// Filter selects tasks. Fields that are set must all match.
type Filter struct {
	Queue         string
	States        []State // any of them
	Type          string
	Tag           string
	Key           string
	Worker        string
	Error         string // part of the last error's message
	Fingerprint   string // of a DeadGroup: of the type, and the last error's message without what differs
	Operation     string // id of the last operation that changed the task
	CreatedAfter  time.Time
	CreatedBefore time.Time
	Text          string // part of the payload
}

func (f Filter) proto() (*pawlv1.Filter, error) {
	states, err := statesProto("state", f.States)
	if err != nil {
		return nil, err
	}
	return &pawlv1.Filter{Queue: f.Queue, States: states, Type: f.Type, Tag: f.Tag, Key: f.Key, Worker: f.Worker, Error: f.Error, Fingerprint: f.Fingerprint, Operation: f.Operation,
		CreatedAfter: timestampOrNil(f.CreatedAfter), CreatedBefore: timestampOrNil(f.CreatedBefore), Q: f.Text}, nil
}

// PageRequest says which part of a list is wanted.
type PageRequest struct {
	Limit       int    // items at most: default 100, at most 1,000
	Cursor      string // Page.NextCursor of the page before; "" for the first
	WithPayload bool   // of tasks: their payloads too
}

// Page is a part of a list.
type Page[T any] struct {
	Items      []T       // may be empty while NextCursor is set: the search goes on
	NextCursor string    // "" at the end
	Searched   *Searched // of tasks: how far the search came that ended before the page was full; nil: it is full, or the list ends here
}

// Searched says how far the search for a page of tasks came. Where few tasks match, a page ends once a bounded number of rows was read.
type Searched struct {
	Rows  int64     // that were read for this page
	Until time.Time // all that were created later were found; of the dead letters of a queue, all that ended later
}

// searchedOf is what a page of an answer tells of its search.
func searchedOf(resp any) *Searched {
	r, ok := resp.(interface{ GetSearched() *pawlv1.Searched })
	if !ok || r.GetSearched() == nil {
		return nil
	}
	return &Searched{Rows: r.GetSearched().GetRows(), Until: timeOf(r.GetSearched().GetUntil())}
}

// List goes over the tasks that match, newest first, without their payloads. It reads page by page and ends at the first error.
func (c *Client) List(ctx context.Context, filter Filter) iter.Seq2[*TaskInfo, error] {
	return pages(func(cursor string) (Page[*TaskInfo], error) {
		return c.ListPage(ctx, filter, PageRequest{Cursor: cursor})
	})
}

// ListPage gives one page of the tasks that match, newest first.
func (c *Client) ListPage(ctx context.Context, filter Filter, page PageRequest) (Page[*TaskInfo], error) {
	f, err := filter.proto()
	if err != nil {
		return Page[*TaskInfo]{}, fmt.Errorf("list tasks: %w", err)
	}
	resp, err := call(ctx, c, true, c.producer.ListTasks, &pawlv1.ListTasksRequest{
		Filter: f, Limit: clampInt32(page.Limit), Cursor: page.Cursor, WithPayload: page.WithPayload,
	})
	if err != nil {
		return Page[*TaskInfo]{}, fmt.Errorf("list tasks: %w", err)
	}
	return pageOf(resp, infoOf), nil
}

// pageOf is a page of an answer.
func pageOf[P, T any](resp interface {
	GetItems() []P
	GetNextCursor() string
}, of func(P) T) Page[T] {
	page := Page[T]{NextCursor: resp.GetNextCursor(), Searched: searchedOf(resp)}
	for _, p := range resp.GetItems() {
		page.Items = append(page.Items, of(p))
	}
	return page
}

// pages goes over the items of all pages.
func pages[T any](read func(cursor string) (Page[T], error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		cursor := ""
		for {
			page, err := read(cursor)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			if page.NextCursor == cursor {
				var none T
				yield(none, errors.New("pawl: list stands still: the broker gave the same cursor twice"))
				return
			}
			cursor = page.NextCursor
		}
	}
}
