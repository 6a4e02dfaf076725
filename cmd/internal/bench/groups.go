package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/pawlq/pawl/pawltype"
)

// groupResult is the cost of a group on top of that of its tasks.
type groupResult struct {
	FillRate      float64      `json:"fill_per_s"`
	FillPlain     float64      `json:"fill_per_s_plain"`
	PlainRate     float64      `json:"rate_plain"` // of the same tasks without a group
	Get           *percentiles `json:"get_group_ms"`
	Page          *percentiles `json:"members_page_ms"` // of the first 100
	CompletedMS   float64      `json:"completion_after_ms"`
	PlainMemoryMB float64      `json:"server_resident_mb_plain"`
}

const (
	// maxMembers is the server's limit.
	maxMembers = 100_000
	// doneType is the type of the task that the group enqueues when it is complete.
	doneType = "bench-done"
	// completeTime bounds the wait for it.
	completeTime = time.Minute
	// lookEvery is how often the group is read while its members run.
	lookEvery = 100 * time.Millisecond
)

// benchGroups runs the members of one group, after as many tasks that belong to no group.
func benchGroups(ctx context.Context, r *run) (*result, error) {
	if r.tasks == 0 || r.tasks > maxMembers {
		return nil, cli.Usage("--members %d: want 1 to %d", r.tasks, maxMembers)
	}
	plain := *r
	plain.queue += "-plain"
	defer plain.tidy(ctx)
	line := &groupResult{}
	began := time.Now()
	if err := plain.fill(ctx, r.tasks); err != nil {
		return nil, err
	}
	line.FillPlain = round3(float64(r.tasks) / time.Since(began).Seconds())
	alone, err := plain.workOff(ctx, "")
	if err != nil {
		return nil, err
	}
	line.PlainRate, line.PlainMemoryMB = alone.Rate, residentMB(r.pid)
	began = time.Now()
	id, err := r.fillGroup(ctx)
	if err != nil {
		return nil, err
	}
	line.FillRate = round3(float64(r.tasks) / time.Since(began).Seconds())
	looks := r.lookAt(ctx, id)
	out, err := r.workOff(ctx, fmt.Sprintf("members of one group, 1 worker, %d slots", r.slots))
	ended := time.Now()
	get, page, lookErr := looks()
	if err := errors.Join(err, lookErr); err != nil {
		return nil, err
	}
	line.Get, line.Page = get.percentiles(), page.percentiles()
	if err := r.untilComplete(ctx, id); err != nil {
		return nil, err
	}
	line.CompletedMS = round3(time.Since(ended).Seconds() * 1000)
	out.Group = line
	return out, nil
}

// fillGroup creates a group and adds its members.
func (r *run) fillGroup(ctx context.Context) (id string, err error) {
	done := pawl.Item{Args: pawl.RawTask{Type: doneType, Payload: []byte("{}")}, Options: r.options()}
	made, err := r.client.EnqueueGroup(ctx, pawl.GroupSpec{Name: r.queue, Open: true, OnComplete: &done, Retention: r.keep})
	if err != nil {
		return "", err
	}
	members := *r
	members.group = made.ID
	if err := members.fill(ctx, r.tasks); err != nil {
		return "", err
	}
	_, err = r.client.CloseGroup(ctx, made.ID)
	return made.ID, err
}

// lookAt reads a group and its first members over and over until stop is called, which returns the latencies of both calls.
func (r *run) lookAt(ctx context.Context, id string) (stop func() (get, page *histogram, err error)) {
	ctx, cancel := context.WithCancel(ctx)
	get, page := &histogram{}, &histogram{}
	var failed error
	var looking sync.WaitGroup
	looking.Go(func() {
		for tick := time.NewTicker(lookEvery); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			begin := time.Now()
			_, err := r.client.Group(ctx, id)
			between := time.Now()
			if err == nil {
				_, err = r.client.GroupMembersPage(ctx, id, pawltype.PageRequest{})
			}
			switch {
			case ctx.Err() != nil: // cancelled by stop
			case err != nil:
				failed = err
				return
			default:
				get.record(between.Sub(begin))
				page.record(time.Since(between))
			}
		}
	})
	return func() (*histogram, *histogram, error) {
		cancel()
		looking.Wait()
		return get, page, failed
	}
}

// untilComplete waits until the group has enqueued its completion task.
func (r *run) untilComplete(ctx context.Context, id string) error {
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		g, err := r.client.Group(ctx, id)
		switch {
		case err != nil:
			return err
		case g.OnComplete.TaskID != "":
			return nil
		case time.Since(began) > completeTime:
			return fmt.Errorf("group %s is %s after %v: %+v", id, g.State, completeTime, g.Counts)
		}
	}
}
