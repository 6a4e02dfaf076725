package shard

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/store"
)

// An image contains what was acknowledged before it was requested, and nothing written while it is read.
func TestImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		defer b.close()
		if _, err := b.set("a", "1"); err != nil {
			t.Fatal(err)
		}
		var image bytes.Buffer
		at, err := b.Image(t.Context(), func(_ context.Context, snap *store.Snapshot) error {
			if _, err := b.set("a", "2"); err != nil {
				return err
			}
			if v, _ := snap.Get([]byte("a")); string(v) != "1" {
				t.Errorf("the image has a=%q, want 1", v)
			}
			return snap.WriteImage(&image)
		})
		if err != nil || b.get("a") != "2" {
			t.Fatalf("Image: %v; then a = %q, want 2", err, b.get("a"))
		}
		head, rows, err := store.CheckImage(&image)
		if err != nil || rows != 1 || head.Position.Index != at.Index || head.Position.Term != at.Term {
			t.Errorf("the image is %+v with %d rows, %v, want one row at %+v", head, rows, err, at)
		}
		broken := errors.New("nobody takes it")
		if _, err := b.Image(t.Context(), func(context.Context, *store.Snapshot) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("an error of the reader was returned as %v", err)
		}
	})
}

// A replica that stops does not wait for readers of its state.
func TestStopDoesNotWaitForImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		defer b.close()
		reading, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := b.Image(t.Context(), func(ctx context.Context, _ *store.Snapshot) error {
				close(reading)
				<-ctx.Done()
				return ctx.Err()
			})
			ended <- err
		}()
		<-reading
		b.Stop()
		if err := <-ended; !errors.Is(err, ErrStopped) {
			t.Errorf("Image on a replica that stopped returned %v, want ErrStopped", err)
		}
		if _, err := b.Image(t.Context(), nil); !errors.Is(err, ErrStopped) {
			t.Errorf("Image after Stop returned %v, want ErrStopped", err)
		}
	})
}

// A caller that has left learns that, also when the replica stops meanwhile.
func TestImageIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{})
		ctx, cancel := context.WithCancel(t.Context())
		reading, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := b.Image(ctx, func(ctx context.Context, _ *store.Snapshot) error {
				close(reading)
				<-ctx.Done()
				time.Sleep(time.Second) // the replica stops meanwhile
				return ctx.Err()
			})
			ended <- err
		}()
		<-reading
		cancel()
		b.close()
		if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, ErrStopped) {
			t.Errorf("Image returned %v, want that the caller's context ended", err)
		}
	})
}

func TestImageOnlyOfLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBench(t, fixture{voters: []uint64{1, 2}})
		defer b.close()
		var not *NotLeader
		if _, err := b.Image(t.Context(), nil); !errors.As(err, &not) {
			t.Errorf("Image on a replica that does not lead returned %v, want NotLeader", err)
		}
	})
}
