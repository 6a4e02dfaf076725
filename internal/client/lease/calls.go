// Package lease has a worker's calls about the claims that it holds: how they end, extensions, and once keys. It does not know handlers.
package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/client/telemetry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/encrypt"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/pawltype"
)

// Holder holds claims for their handlers: a worker, or a loop of the user's own. Its methods are safe for concurrent use.
type Holder interface {
	// Progress reports a handler's progress. It need not wait for the broker.
	Progress(ctx context.Context, c Claim, p *pawlv1.Progress) error
	// Checkpoint stores data for the next attempt. When it returns nil, the data is on stable storage.
	Checkpoint(ctx context.Context, c Claim, data []byte) error
	OnceKeys
}

// OnceKeys has the calls about once keys.
type OnceKeys interface {
	// BeginOnce asks for a once key.
	BeginOnce(ctx context.Context, c Claim, key string) (pawltype.OnceAnswer, error)
	// FinishOnce records that the effect has happened, with its result.
	FinishOnce(ctx context.Context, c Claim, key string, result []byte, ttl time.Duration) error
	// AbandonOnce reports that the effect did not happen.
	AbandonOnce(ctx context.Context, c Claim, key string) error
}

// Calls makes the calls about claims.
type Calls struct {
	caller  *rpc.Caller
	worker  pawlv1.WorkerServiceClient
	observe *telemetry.Telemetry
}

func NewCalls(caller *rpc.Caller, observe *telemetry.Telemetry) Calls {
	return Calls{caller: caller, worker: pawlv1.NewWorkerServiceClient(caller), observe: observe}
}

// Extend extends the lease, by its own length if lease is 0, and stores progress and checkpoint if they are not nil.
func (s Calls) Extend(ctx context.Context, c Claim, lease time.Duration, progress *pawlv1.Progress,
	checkpoint []byte) (*pawlv1.ExtendResponse, error) {
	if encrypt.IsWrapped(checkpoint) && !encrypt.Encrypts(s.caller.Conn) { // a reader would try to decrypt it
		return nil, fmt.Errorf("extend %q: %w", c.TaskID, convert.Invalid("checkpoint",
			"looks encrypted, because it begins with {\"pawl_encrypted\":\", and the client has no keyring"))
	}
	req := &pawlv1.ExtendRequest{TaskId: c.TaskID, ClaimToken: c.Token, Lease: convert.Duration(lease), Progress: progress,
		Checkpoint: checkpoint}
	resp, err := rpc.Call(encrypt.ForClaim(ctx, c.Type), s.caller, true, s.worker.Extend, req)
	if err != nil {
		return nil, fmt.Errorf("extend %q: %w", c.TaskID, err)
	}
	return resp, nil
}

// BeginOnce asks for a once key.
func (s Calls) BeginOnce(ctx context.Context, c Claim, key string) (pawltype.OnceAnswer, error) {
	p, err := rpc.Call(ctx, s.caller, true, s.worker.BeginOnce, &pawlv1.BeginOnceRequest{TaskId: c.TaskID, ClaimToken: c.Token, Key: key})
	if err != nil {
		return pawltype.OnceAnswer{}, fmt.Errorf("begin: %w", err)
	}
	return convert.OnceAnswer(p), nil
}

// FinishOnce records that the effect has happened, with its result: JSON, or nothing. It returns until when the record is kept: ttl from
// now, or a day if ttl is 0. A repeat returns the first answer.
func (s Calls) FinishOnce(ctx context.Context, c Claim, key string, result []byte, ttl time.Duration) (keptUntil time.Time, err error) {
	req := &pawlv1.FinishOnceRequest{TaskId: c.TaskID, ClaimToken: c.Token, Key: key, Result: result, Ttl: convert.Duration(ttl)}
	p, err := rpc.Call(ctx, s.caller, true, s.worker.FinishOnce, req)
	if err != nil {
		return time.Time{}, fmt.Errorf("finish: %w", err)
	}
	return convert.Time(p.GetKeptUntil()), nil
}

// AbandonOnce reports that the effect did not happen, and returns the key's state. It is not retried: after ErrUnavailable the claim may
// or may not still hold the key.
func (s Calls) AbandonOnce(ctx context.Context, c Claim, key string) (pawltype.OnceState, error) {
	req := &pawlv1.AbandonOnceRequest{TaskId: c.TaskID, ClaimToken: c.Token, Key: key}
	p, err := rpc.Call(ctx, s.caller, false, s.worker.AbandonOnce, req)
	if err != nil {
		return "", fmt.Errorf("abandon: %w", err)
	}
	return convert.OnceState(p.GetState()), nil
}

// Settle sends endings in their own call and returns the results in order. It repeats those whose shard does not answer.
func (s Calls) Settle(ctx context.Context, endings []Ending) ([]*pawlv1.Settled, error) {
	start := time.Now()
	out, err := s.settle(ctx, endings)
	for try := 0; err == nil; try++ {
		var at []int
		var again []Ending // out[at[n]] is the result of again[n]
		var away error
		for i, p := range out {
			if pawltype.ErrorCode(p.GetError().GetCode()) == pawltype.ErrUnavailable {
				at, again, away = append(at, i), append(again, endings[i]), convert.Error(p.GetError())
			}
		}
		if len(again) == 0 || time.Since(start) >= s.caller.RetryFor() || s.caller.Pause(ctx, try, away) != nil {
			break
		}
		answers, failed := s.settle(ctx, again)
		if failed != nil {
			break
		}
		for n, p := range answers {
			out[at[n]] = p
		}
	}
	return out, err
}

func (s Calls) settle(ctx context.Context, endings []Ending) ([]*pawlv1.Settled, error) {
	req := &pawlv1.SettleRequest{}
	for _, e := range endings {
		e.AddTo(req)
	}
	ctx, op := s.observe.SettleMany(ctx, len(endings))
	resp, err := rpc.Call(ctx, s.caller, true, s.worker.Settle, req)
	op.End(err)
	if err != nil {
		return nil, err
	}
	acks, fails, releases := resp.GetAcks(), resp.GetFails(), resp.GetReleases()
	if len(acks) != len(req.Acks) || len(fails) != len(req.Fails) || len(releases) != len(req.Releases) {
		return nil, &pawltype.Error{Code: pawltype.ErrInternal, Message: fmt.Sprintf("%d settles got %d answers", len(endings),
			len(acks)+len(fails)+len(releases))}
	}
	out := make([]*pawlv1.Settled, len(endings))
	for i, e := range endings {
		switch {
		case e.ack != nil:
			out[i], acks = acks[0], acks[1:]
		case e.fail != nil:
			out[i], fails = fails[0], fails[1:]
		default:
			out[i], releases = releases[0], releases[1:]
		}
	}
	return out, nil
}
