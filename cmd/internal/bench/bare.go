package bench

import (
	"context"
	"errors"
	"os"
	"time"
)

// bareResult is what the machine does without Pawl.
type bareResult struct {
	RPCRate  float64      `json:"rpc_per_s"`   // one at a time
	RPC      *percentiles `json:"rpc_ms"`      // of an empty call
	SyncRate float64      `json:"sync_per_s"`  // one at a time
	Sync     *percentiles `json:"sync_ms"`     // 1.4 KiB appended to a file and synced
	Where    string       `json:"sync_on_dir"` // the disk that was used
}

// bareWrite is roughly what a task of 1 KiB adds to the log, in bytes.
const bareWrite = 1400

func benchBare(ctx context.Context, r *run) (*result, error) {
	bare, err := measureBare(ctx, r, r.duration)
	if err != nil {
		return nil, err
	}
	return &result{Unit: "calls/s", Rate: bare.RPCRate, Latency: bare.RPC, Of: "an empty call",
		Count: int64(bare.RPCRate * r.duration.Seconds()), Seconds: r.duration.Seconds(), Bare: bare}, nil
}

func measureBare(ctx context.Context, r *run, d time.Duration) (*bareResult, error) {
	operator := r.app.Admin(r.client)
	rpc, rpcRate, err := repeat(ctx, d, func() error {
		_, err := operator.Cluster().Server(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(r.dir, "pawl-bench-sync-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	block := make([]byte, bareWrite)
	sync, syncRate, err := repeat(ctx, d, func() error {
		if _, err := f.Write(block); err != nil {
			return err
		}
		return f.Sync()
	})
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return &bareResult{RPCRate: rpcRate, RPC: rpc, SyncRate: syncRate, Sync: sync, Where: r.dir}, nil
}

// repeat calls do over and over for d.
func repeat(ctx context.Context, d time.Duration, do func() error) (*percentiles, float64, error) {
	var h histogram
	start := time.Now()
	for now := start; now.Sub(start) < d; {
		if err := errors.Join(ctx.Err(), do()); err != nil {
			return nil, 0, err
		}
		next := time.Now()
		h.record(next.Sub(now))
		now = next
	}
	return h.percentiles(), round3(float64(h.n) / time.Since(start).Seconds()), nil
}
