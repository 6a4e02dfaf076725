package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/cluster"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/router/forward"
	"github.com/pawlq/pawl/internal/shard"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// openAll opens the images of all shards at a consistent cut. The last one is the system shard.
func (a *clusterAdmin) openAll(ctx context.Context, shards []uint32) (images []*image, err error) {
	for try := range cutTries {
		if try > 0 {
			_ = pause(ctx, cutPause)
		}
		if images, err = a.openOnce(ctx, shards); err == nil || ctx.Err() != nil || a.stopping() {
			break
		}
	}
	return images, notBegun(ctx, err)
}

// openOnce holds all data shards, opens all images, and makes sure that no shard was free or had another leader in between.
func (a *clusterAdmin) openOnce(ctx context.Context, shards []uint32) (_ []*image, err error) {
	data := shards[:len(shards)-1]
	c := &cut{a: a, id: task.NewID(systemShard, time.Now().UnixMilli(), rand.Uint64()), data: data, terms: make([]uint64, len(data))}
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	images := make([]*image, len(shards))
	defer func() {
		c.end(ctx)
		if err != nil {
			closeImages(images)
		}
	}()
	soon, cancel := context.WithTimeout(ctx, task.CutWindow)
	defer cancel()
	open := func(i int, id uint32) (err error) {
		images[i], err = a.openImage(ctx, soon, id)
		return ofShard(id, err)
	}
	if err := c.begin(soon); err != nil {
		return nil, err
	}
	if err := parallel.FirstError(forward.EachShard(data, open)); err != nil {
		return nil, err
	}
	if err := open(len(data), systemShard); err != nil {
		return nil, err
	}
	if err := a.noNewShard(soon, len(shards)); err != nil {
		return nil, err
	}
	if a.opened != nil {
		a.opened()
	}
	return images, c.check(soon)
}

// noNewShard makes sure that no data shard was added before the image of the system shard: it might have taken tasks from the others.
func (a *clusterAdmin) noNewShard(ctx context.Context, shards int) error {
	o, err := cluster.GetOverview.Call(ctx, a.router, verb.Nothing{})
	if err == nil && len(shardsOf(o)) != shards {
		err = task.Unavailable(backupRetryAfter, "shards were added while the backup began: start again")
	}
	return err
}

// openImage opens the image of a shard, wherever that is led. ctx is that of the image; it must be open soon.
func (a *clusterAdmin) openImage(ctx, soon context.Context, id uint32) (*image, error) {
	st, err := a.groups.Status(soon, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(soon, cancel)
	img, err := a.images.openFrom(ctx, nodeOf(st.Leader), id)
	if stop() && err == nil {
		end := img.close
		img.close = func() { end(); cancel() }
		return img, nil
	}
	cancel()
	var moved *shard.NotLeader
	switch {
	case err == nil:
		img.close()
		err = soon.Err()
	case errors.As(err, &moved):
		err = task.Unavailable(backupRetryAfter, "shard %d: its leader is changing", id)
	}
	return nil, err
}

func closeImages(images []*image) {
	for _, img := range images {
		if img != nil {
			img.close()
		}
	}
}

// cut holds data shards.
type cut struct {
	a     *clusterAdmin
	id    task.ID
	data  []uint32
	terms []uint64 // of the leaders, in the order of data
}

func (c *cut) on(i int, id uint32) broker.OnCut {
	return broker.OnCut{OnShard: broker.OnShard{Shard: id}, ID: c.id, Term: c.terms[i]}
}

// ready makes sure that all shards answer before any is held: one that hangs would keep the others held.
func (c *cut) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verb.PartTime)
	defer cancel()
	errs := forward.EachShard(c.data, func(_ int, id uint32) error {
		_, err := broker.Spaces.Call(ctx, c.a.router, broker.OnSpaces{Shard: id})
		return ofShard(id, err)
	})
	return parallel.FirstError(append(errs, c.a.noNewShard(ctx, len(c.data)+1)))
}

// begin holds the shards. One that begins to hang meanwhile holds the others up for as long as it may take.
func (c *cut) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cutBegin)
	defer cancel()
	return parallel.FirstError(forward.EachShard(c.data, func(i int, id uint32) error {
		begun, err := broker.BeginCut.Call(ctx, c.a.router, c.on(i, id))
		c.terms[i] = begun.Term
		return ofShard(id, err)
	}))
}

func (c *cut) check(ctx context.Context) error {
	return parallel.FirstError(forward.EachShard(c.data, func(i int, id uint32) error {
		_, err := broker.CheckCut.Call(ctx, c.a.router, c.on(i, id))
		return ofShard(id, err)
	}))
}

// end releases the shards. One that can't be reached releases itself.
func (c *cut) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutRelease)
	defer cancel()
	forward.EachShard(c.data, func(i int, id uint32) error {
		_, err := broker.EndCut.Call(ctx, c.a.router, c.on(i, id))
		return err
	})
}

// ofShard adds a shard to its error, unless that is a refusal, which names it.
func ofShard(id uint32, err error) error {
	if _, refused := task.AsError(err); err == nil || refused {
		return err
	}
	return fmt.Errorf("shard %d: %w", id, err)
}
