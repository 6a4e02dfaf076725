package node

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
)

// sealed returns a client of the node that encrypts.
func (s *server) sealed(keys ...keyring.Key) *pawl.Client {
	s.t.Helper()
	ring, err := keyring.New(keyring.Config{Keys: keys, AcceptFrom: []string{"first"}})
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := pawl.Dial("node", pawl.DialOptions{Dialer: func(ctx context.Context, _ string) (net.Conn, error) {
		return s.pipe.DialContext(ctx)
	}, Keyring: ring})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// holds reports whether any row on the node contains the bytes.
func (s *server) holds(what []byte) (found bool) {
	for _, id := range s.replicas.all() {
		s.replicas.get(id).state.Scan([]byte{0}, bytes.Repeat([]byte{0xff}, 64), func(k, v []byte) bool {
			found = found || bytes.Contains(v, what) || bytes.Contains(k, what)
			return !found
		})
	}
	return found
}

// A task's whole life with a keyring, through everything that passes payloads and results on; the node stores none of them in the
// clear.
func TestEncryptedLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Config{InMemory: true, DataShards: 2})
		key := keyring.Key{ID: "k1", Secret: bytes.Repeat([]byte{7}, 32)}
		client := s.sealed(key)
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		secret := func(s string) pawl.RawTask { return pawl.RawTask{Type: "t", Payload: []byte(`"secret ` + s + `"`)} }
		var mu sync.Mutex
		seen := map[string]int{}
		saw := func(text string) {
			mu.Lock()
			defer mu.Unlock()
			seen[text]++
		}
		mux := pawl.NewMux()
		mux.HandleFunc("t", func(ctx context.Context, c *pawl.Claim) error {
			var text string
			must(c.Decode(&text))
			saw(text)
			if c.Parent != nil && c.Parent.TaskID != "" {
				var parent string
				must(c.ParentResult(&parent))
				saw("parent: " + parent)
			}
			if c.Attempt == 1 && text == "secret steps" {
				must(c.Checkpoint(ctx, "secret checkpoint"))
				_, err := pawl.Step(ctx, c, "one", func(context.Context) (string, error) { return "secret step", nil })
				must(err)
				return pawl.RetryIn(time.Second, errors.New("again"))
			}
			if text == "secret steps" {
				var saved string
				if _, err := c.LastCheckpoint(&saved); err != nil || saved != "secret checkpoint" {
					t.Errorf("the checkpoint is %q, %v", saved, err)
				}
				again, err := pawl.Step(ctx, c, "one", func(context.Context) (string, error) { return "it ran again", nil })
				if err != nil || again != "secret step" {
					t.Errorf("the step gave %q, %v", again, err)
				}
			}
			for range 2 {
				once, err := pawl.Once(ctx, c, "once", func(context.Context) (string, error) { return "secret once", nil })
				if err != nil || once != "secret once" {
					t.Errorf("once gave %q, %v", once, err)
				}
			}
			return c.SetResult("result of " + text)
		})
		worker := pawl.NewWorker(client, mux, pawl.WorkerConfig{Queues: pawl.Strict{"default", "second"}})
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- worker.Run(running) }()

		ref, err := client.Enqueue(ctx, secret("steps"), pawl.Then(secret("then")), pawl.IdempotencyKey("a"))
		must(err)
		again, err := client.Enqueue(ctx, secret("steps"), pawl.Then(secret("then")), pawl.IdempotencyKey("a"))
		if err != nil || !again.Duplicate || again.ID != ref.ID {
			t.Errorf("a repeat: %+v, %v", again, err)
		}
		info, err := ref.Wait(ctx)
		must(err)
		var result string
		if must(info.DecodeResult(&result)); result != "result of secret steps" || !strings.Contains(string(info.Payload), "secret") {
			t.Errorf("the task is told as %s, with result %q", info.Payload, result)
		}
		made, err := client.EnqueueGroup(ctx, pawl.GroupSpec{Tasks: []pawl.Item{{Args: secret("member")}},
			OnComplete: &pawl.Item{Args: secret("complete")}, Open: true})
		must(err)
		added, err := client.AddToGroup(ctx, made.ID, []pawl.Item{{Args: secret("late member")}})
		must(errors.Join(err, added[0].Err))
		_, err = client.CloseGroup(ctx, made.ID)
		must(err)
		schedule := admin.ScheduleSpec{Name: "s", Every: time.Minute, Task: secret("tick")}
		for _, want := range []string{"created", "unchanged"} {
			change, err := admin.New(client).Schedules().Put(ctx, schedule)
			if must(err); change.Change != want || !strings.Contains(string(change.Schedule.Task.Payload), "secret tick") {
				t.Errorf("the schedule is %s with %s, want %s", change.Change, change.Schedule.Task.Payload, want)
			}
		}
		batch, err := client.EnqueueBatch(ctx, []pawl.Item{{Args: secret("batch")}, {Args: pawl.RawTask{Type: "t", Payload: []byte("{")}}})
		if err != nil || batch[0].Err != nil || !errors.Is(batch[1].Err, pawltype.ErrInvalidArgument) {
			t.Errorf("a batch: %+v, %v", batch, err)
		}
		late, err := client.Enqueue(ctx, secret("early"), pawl.In(time.Minute))
		must(err)
		_, err = admin.New(client).Tasks().Update(ctx, late.ID, admin.TaskUpdate{Payload: "secret edited"})
		must(err)
		moved, err := client.Enqueue(ctx, secret("moved"), pawl.Queue("first"))
		must(err)
		op, err := admin.New(client).Operations().Start(ctx, admin.OperationSpec{Action: admin.ActionMove,
			Filter: &admin.Filter{Queue: "first"}, ToQueue: "second"})
		must(err)
		pass(3 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for _, want := range []string{"secret steps", "parent: result of secret steps", "secret then", "secret member",
			"secret late member", "secret complete", "secret tick", "secret batch", "secret edited", "secret moved"} {
			if seen[want] == 0 {
				t.Errorf("no handler saw %q: %v (operation %s, task %s)", want, seen, op.ID, moved.ID)
			}
		}
		if seen["secret early"] != 0 {
			t.Error("a handler saw a payload that was replaced")
		}
		for m, err := range client.GroupMembers(ctx, made.ID) {
			if must(err); !strings.Contains(string(m.Result), "result of") {
				t.Errorf("a member's result: %s", m.Result)
			}
		}
		if s.holds([]byte("secret")) || s.holds([]byte("result of")) {
			t.Error("what was to be secret lies in the node")
		}
		if !s.holds([]byte("key=k1")) {
			t.Error("nothing was looked at")
		}

		// Without the key, a client sees that it is encrypted, and with which key.
		stranger, err := s.client().Task(ctx, ref.ID)
		must(err)
		if id, ok := keyring.EncryptedWith(stranger.ContentType); !ok || id != "k1" || bytes.Contains(stranger.Payload, []byte("secret")) ||
			stranger.DecodeResult(&result) == nil {
			t.Errorf("a stranger sees %q, %q", stranger.ContentType, stranger.Payload)
		}
		stop()
		must(<-ended)
	})
}
