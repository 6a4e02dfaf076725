package pawl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/client/convert"
	"github.com/pawlq/pawl/internal/client/encrypt"
	"github.com/pawlq/pawl/internal/client/lease"
	"github.com/pawlq/pawl/pawltype"
)

// checkpointState is the state that a claim keeps for later attempts, and the steps and once keys that this one is working on.
type checkpointState struct {
	mu      sync.Mutex
	data    checkpointData
	sending sync.Mutex               // held while a new version is sent: one at a time
	busy    map[string]chan struct{} // steps and once keys that a goroutine is working on; closed when it is done
	unclear map[string]bool          // once keys that the claim may or may not hold
	local   localOnceKeys
}

// checkpointData is the content of the task's checkpoint: the handler's own bytes, and the results of steps. It is never changed in place.
//
// Without steps the checkpoint is the handler's own, byte for byte. With the first step it becomes an object around both, which
// programs without this package can read too:
//
//	{"pawl_steps": {"charge": "ch_7"}, "checkpoint": {"page": 3}}
type checkpointData struct {
	own   []byte
	steps map[string]json.RawMessage
}

// container is that object.
type container struct {
	Steps map[string]json.RawMessage `json:"pawl_steps"`
	Own   json.RawMessage            `json:"checkpoint,omitempty"`
}

// parseCheckpoint reads a checkpoint. One that is not a container is the handler's own.
func parseCheckpoint(checkpoint []byte) checkpointData {
	if !bytes.Contains(checkpoint, []byte(`"pawl_steps"`)) {
		return checkpointData{own: checkpoint}
	}
	var c container
	if err := strictly(checkpoint, &c); err != nil || c.Steps == nil {
		return checkpointData{own: checkpoint}
	}
	return checkpointData{own: c.Own, steps: c.Steps}
}

// encode is the inverse of parseCheckpoint. A checkpoint of the handler's own that looks like a container, or encrypted, is put into one.
func (k checkpointData) encode() ([]byte, error) {
	if len(k.steps) == 0 && parseCheckpoint(k.own).steps == nil && !encrypt.IsWrapped(k.own) {
		return k.own, nil
	}
	steps := k.steps
	if steps == nil {
		steps = map[string]json.RawMessage{}
	}
	return json.Marshal(container{Steps: steps, Own: k.own})
}

// room returns an error if no result can be kept.
func (k checkpointData) room() error {
	if len(k.own) > 0 && !json.Valid(k.own) {
		return convert.Invalid("checkpoint", "is not JSON, so no step result can be stored with it")
	}
	return nil
}

// strictly decodes a single JSON value, and rejects fields that v lacks.
func strictly(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("unexpected data after the value")
	}
	return nil
}

func (s *checkpointState) current() checkpointData {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

func (s *checkpointState) checkpoint() []byte { return s.current().own }

func (s *checkpointState) step(name string) (json.RawMessage, bool) {
	result, ok := s.current().steps[name]
	return result, ok
}

// save makes a new version of the checkpoint, and returns once the broker has it on stable storage.
func (c *Claim) save(ctx context.Context, change func(k *checkpointData)) error {
	c.saved.sending.Lock()
	defer c.saved.sending.Unlock()
	next := c.saved.current()
	next.steps = maps.Clone(next.steps)
	change(&next)
	data, err := next.encode()
	if err != nil {
		return err
	}
	if len(data) > maxCheckpoint {
		return next.tooLarge(len(data))
	}
	if c.holder != nil {
		if err := c.holder.Checkpoint(ctx, c.ref(), data); err != nil {
			return err
		}
	}
	c.saved.mu.Lock()
	defer c.saved.mu.Unlock()
	c.saved.data = next
	return nil
}

func (k checkpointData) tooLarge(size int) error {
	if len(k.steps) == 0 {
		return convert.Invalid("checkpoint", "%d bytes, at most %d", size, maxCheckpoint)
	}
	return convert.Invalid("checkpoint", "%d bytes, with %d steps and the handler's own %d bytes; at most %d", size, len(k.steps),
		len(k.own), maxCheckpoint)
}

// enter waits until no other goroutine of the handler is working on name, and claims it.
func (s *checkpointState) enter(ctx context.Context, name string) (leave func(), err error) {
	for {
		s.mu.Lock()
		other := s.busy[name]
		if other == nil {
			mine := make(chan struct{})
			if s.busy == nil {
				s.busy = map[string]chan struct{}{}
			}
			s.busy[name] = mine
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.busy, name)
				close(mine)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *checkpointState) isUnclear(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unclear[key]
}

func (s *checkpointState) noteUnclear(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unclear == nil {
		s.unclear = map[string]bool{}
	}
	s.unclear[key] = true
}

// localOnceKeys stands in for the broker's once keys for a claim that was made by hand, as in tests of handlers: there is no other claim.
type localOnceKeys struct {
	mu   sync.Mutex
	done map[string][]byte
}

// BeginOnce implements lease.OnceKeys.
func (a *localOnceKeys) BeginOnce(_ context.Context, _ lease.Claim, key string) (pawltype.OnceAnswer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if result, ok := a.done[key]; ok {
		return pawltype.OnceAnswer{State: pawltype.OnceDone, Result: slices.Clone(result)}, nil
	}
	return pawltype.OnceAnswer{State: pawltype.OnceRun}, nil
}

// FinishOnce implements lease.OnceKeys.
func (a *localOnceKeys) FinishOnce(_ context.Context, _ lease.Claim, key string, result []byte, _ time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done == nil {
		a.done = map[string][]byte{}
	}
	a.done[key] = result
	return nil
}

// AbandonOnce implements lease.OnceKeys.
func (a *localOnceKeys) AbandonOnce(context.Context, lease.Claim, string) error { return nil }
