package archived

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/task"
)

// Files are the files of an archive, as archive.Archive has them.
type Files interface {
	Read(ns, place string) ([]byte, error)
	List(ctx context.Context, ns, cursor string, fn func(place string, record []byte) bool) (next string, unread []string, err error)
	// Evicted returns how many bytes were removed early, because there was too much.
	Evicted() uint64
}

// Reader reads archived tasks.
type Reader struct {
	Files Files
	// Began returns when a namespace was added: what was archived before is of an earlier one of its name, and not shown; nil: all is
	// shown.
	Began func(ns string) (time.Time, error)
	// Damaged counts the records that could not be read; one that is read again counts again.
	Damaged *atomic.Uint64
}

// NewReader returns a reader of an archive.
func NewReader(files Files, began func(ns string) (time.Time, error)) Reader {
	return Reader{files, began, new(atomic.Uint64)}
}

func (r Reader) began(ns string) (time.Time, error) {
	if r.Began == nil {
		return time.Time{}, nil
	}
	return r.Began(ns)
}

// Page is a part of a namespace's archive, newest first. It may be empty although more follow.
type Page struct {
	Tasks  []Task
	Places []string // one per task
	Next   string   // the cursor to continue from; "": there are no more
	// Damaged is the place of the first record, or else the first file, that could not be read and was left out; "": none. The next page may
	// name it again.
	Damaged string
}

// MaxPageBytes bounds the tasks of a page, so that it fits into a message. A page has at least one if there is any.
const MaxPageBytes = 12 << 20

// Archived returns a page of the archive for one namespace and optionally one queue. cursor is the Next of the previous page, "" at the
// start.
func (r Reader) Archived(ctx context.Context, ns, queue, cursor string, limit int) (p Page, err error) {
	name, err := json.Marshal(queue)
	if err != nil {
		return p, err
	}
	began, err := r.began(ns)
	if err != nil {
		return p, err
	}
	ofQueue := append([]byte(`"queue":`), name...)
	size, full, room := 0, false, task.RoomOf(ctx)
	next, unread, err := r.Files.List(ctx, ns, cursor, func(place string, line []byte) bool {
		if queue != "" && !bytes.Contains(line, ofQueue) { // decoding it would cost much more
			return true
		}
		t, err := decode(place, line)
		if err != nil {
			r.Damaged.Add(1)
			p.Damaged = cmp.Or(p.Damaged, place)
			return true
		}
		if queue != "" && t.Queue != queue || t.ArchivedAt.Before(began) {
			return true
		}
		n := t.Bytes()
		fits := room == nil || room(n)
		if size += n; len(p.Tasks) > 0 && (size > MaxPageBytes || !fits) {
			full = true
			return false
		}
		p.Tasks, p.Places = append(p.Tasks, *t), append(p.Places, place)
		return len(p.Tasks) < limit
	})
	r.Damaged.Add(uint64(len(unread)))
	if p.Next = next; len(unread) > 0 {
		p.Damaged = cmp.Or(p.Damaged, unread[0])
	}
	if full {
		p.Next = p.Places[len(p.Places)-1]
	}
	if errors.Is(err, archive.ErrPlace) {
		err = task.Invalid("cursor", "was not returned by this call")
	}
	return p, err
}

// ArchivedAt reads one archived task of a namespace by its place.
func (r Reader) ArchivedAt(ns, place string) (*Task, error) {
	began, err := r.began(ns)
	if err != nil {
		return nil, err
	}
	line, err := r.Files.Read(ns, place)
	switch {
	case errors.Is(err, archive.ErrPlace):
		return nil, BadPlace(place)
	case errors.Is(err, archive.ErrNoRecord):
		return nil, task.NotFound("archived task", place)
	case err != nil:
		return nil, err
	}
	t, err := decode(place, line)
	if err != nil {
		r.Damaged.Add(1)
		return nil, err
	}
	if t.ArchivedAt.Before(began) {
		return nil, task.NotFound("archived task", place)
	}
	return t, nil
}

func decode(place string, line []byte) (*Task, error) {
	t := &Task{}
	if err := json.Unmarshal(line, t); err != nil {
		return nil, &task.Error{Code: task.CodeNotFound, Field: "places", Message: fmt.Sprintf("the record %q of the archive is damaged: %v", place, err)}
	}
	return t, nil
}

// BadPlace returns the error for a text that is not a place in an archive.
func BadPlace(place string) error {
	return task.Invalid("places", "%q is not a place in the archive: the form is FILE:BYTE, in a cluster NODE:FILE:BYTE, as listed by the archive", place)
}
