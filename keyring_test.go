package pawl_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
)

func payloadKey(id string) keyring.Key {
	return keyring.Key{ID: id, Secret: bytes.Repeat([]byte(id[len(id)-1:]), 32)}
}

// ring returns a keyring with the given keys, of which the first encrypts.
func ring(t testing.TB, ids ...string) *keyring.Keyring {
	t.Helper()
	return ringOf(t, keyring.Config{}, ids...)
}

func ringOf(t testing.TB, cfg keyring.Config, ids ...string) *keyring.Keyring {
	t.Helper()
	for _, id := range ids {
		cfg.Keys = append(cfg.Keys, payloadKey(id))
	}
	k, err := keyring.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sealedBy starts a fake and a client with a keyring in the namespace team.
func sealedBy(t testing.TB, k *keyring.Keyring) (*fake, *pawl.Client) {
	return start(t, pawl.DialOptions{Keyring: k, Namespace: "team"})
}

// also returns another client of a fake.
func also(t testing.TB, f *fake, opts ...pawl.DialOptions) *pawl.Client {
	t.Helper()
	client, err := pawl.Dial("fake", append([]pawl.DialOptions{{Dialer: f.dial, Namespace: "team", Logger: slog.New(slog.DiscardHandler)}},
		opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// The contents of a task are encrypted wherever the broker stores them, and plain for handlers and callers with the key.
func TestKeyringRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := sealedBy(t, ring(t, "k1"))
		tries := 0
		work(t, client, handle(func(ctx context.Context, task *pawl.Task[welcome]) error {
			if tries++; tries == 1 {
				if err := task.Checkpoint(ctx, "secret-checkpoint"); err != nil {
					return err
				}
				return errors.New("again")
			}
			var saved string
			if ok, err := task.LastCheckpoint(&saved); err != nil || !ok || saved != "secret-checkpoint" {
				t.Errorf("LastCheckpoint got %q, %v, %v, want the decrypted checkpoint", saved, ok, err)
			}
			return task.SetResult("secret-result for " + task.Args.To)
		}), pawl.WorkerConfig{})
		ref, err := client.Enqueue(t.Context(), welcome{To: "secret-payload"}, pawl.Then(welcome{To: "secret-then"}))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.set(func() { // the fake repeats nothing by itself
			f.ready = append(f.ready, f.tasks[ref.ID])
			f.pump()
		})
		info, err := ref.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var payload welcome
		var result string
		if err := errors.Join(info.DecodePayload(&payload), info.DecodeResult(&result)); err != nil || payload.To != "secret-payload" ||
			result != "secret-result for secret-payload" {
			t.Errorf("the task has payload %+v and result %q, %v, want them decrypted", payload, result, err)
		}
		got := f.task(t, ref.ID)
		for what, data := range map[string][]byte{"payload": got.spec.Payload, "then": got.spec.Then[0].Payload, "result": got.result,
			"checkpoint": got.check} {
			if len(data) == 0 || bytes.Contains(data, []byte("secret")) {
				t.Errorf("the broker's %s is not encrypted: %q", what, data)
			}
		}
		if id, ok := keyring.EncryptedWith(got.spec.ContentType); !ok || id != "k1" {
			t.Errorf("the content type is %q, want one with key k1", got.spec.ContentType)
		}
	})
}

// A handler's own checkpoint that looks encrypted comes back as it was, whether or not it is encrypted.
func TestCheckpointThatLooksEncrypted(t *testing.T) {
	type state struct {
		Encrypted string `json:"pawl_encrypted"`
	}
	for what, opts := range map[string]pawl.DialOptions{"plain": {}, "encrypted": {Keyring: ring(t, "k1")}} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := start(t)
			client := also(t, f, opts)
			var got state
			tries := 0
			work(t, client, handle(func(ctx context.Context, task *pawl.Task[welcome]) error {
				if tries++; tries == 1 {
					return errors.Join(task.Checkpoint(ctx, state{"mine"}), errors.New("again"))
				}
				_, err := task.LastCheckpoint(&got)
				return err
			}), pawl.WorkerConfig{})
			ref, err := client.Enqueue(t.Context(), welcome{})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			f.set(func() { // the fake does not repeat anything itself
				f.ready = append(f.ready, f.tasks[ref.ID])
				f.pump()
			})
			synctest.Wait()
			if task := f.task(t, ref.ID); tries != 2 || got.Encrypted != "mine" || task.state != pawlv1.State_STATE_SUCCEEDED {
				t.Errorf("%s: %d tries, the checkpoint is %+v, the task %v after %v", what, tries, got, task.state, task.log)
			}
		})
	}
}

// A payload in another place than it was encrypted for poisons its task; one whose key is missing is retried; with OnlyEncrypted, a
// plain one poisons its task.
func TestKeyringRefusals(t *testing.T) {
	poisoned := func(says string) func(*testing.T, *fakeTask) {
		return func(t *testing.T, got *fakeTask) {
			if last := got.log[len(got.log)-1]; got.state != pawlv1.State_STATE_POISONED ||
				!strings.Contains(last.GetError().GetMessage(), says) {
				t.Errorf("the task is %v with the error %q, want poisoned with %q", got.state, last.GetError().GetMessage(), says)
			}
		}
	}
	failed := func(says string) func(*testing.T, *fakeTask) {
		return func(t *testing.T, got *fakeTask) {
			if last := got.log[len(got.log)-1]; got.state == pawlv1.State_STATE_POISONED ||
				!strings.Contains(last.GetError().GetMessage(), says) {
				t.Errorf("the task is %v with the error %q, want a failure with %q", got.state, last.GetError().GetMessage(), says)
			}
		}
	}
	ran := func(t *testing.T, got *fakeTask) {
		if got.state != pawlv1.State_STATE_SUCCEEDED {
			t.Errorf("the task is %v, want succeeded", got.state)
		}
	}
	for name, c := range map[string]struct {
		producer pawl.DialOptions
		worker   pawl.DialOptions
		change   func(f *fake, task *fakeTask) // changes what the broker stores
		want     func(*testing.T, *fakeTask)
	}{
		"as it is":          {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k1")}, nil, ran},
		"with an older key": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k2", "k1")}, nil, ran},
		"without the key": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k2")}, nil,
			failed(`encrypted with key "k1", which the keyring lacks`)},
		"without a keyring": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{}, nil,
			failed(`encrypted with key "k1", and the client has no keyring`)},
		"plain": {pawl.DialOptions{}, pawl.DialOptions{Keyring: ring(t, "k1")}, nil, ran},
		"plain, and not allowed": {pawl.DialOptions{}, pawl.DialOptions{Keyring: ringOf(t, keyring.Config{OnlyEncrypted: true}, "k1")}, nil,
			poisoned("not encrypted")},
		"another's payload": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k1")},
			func(f *fake, task *fakeTask) {
				task.spec.Payload = f.tasks["t1"].spec.Payload
			}, poisoned("it is not what was encrypted for")},
		"another queue": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k1")},
			func(_ *fake, task *fakeTask) {
				task.spec.Queue = new("elsewhere")
			}, poisoned("it is not what was encrypted for")},
		"another queue, from which tasks are moved": {pawl.DialOptions{Keyring: ring(t, "k1")},
			pawl.DialOptions{Keyring: ringOf(t, keyring.Config{AcceptFrom: []string{"x", "default"}}, "k1")},
			func(_ *fake, task *fakeTask) {
				task.spec.Queue = new("elsewhere")
			}, ran},
		"one bit": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k1")}, func(_ *fake, task *fakeTask) {
			task.spec.Payload[len(task.spec.Payload)-1] ^= 1
		}, poisoned("it is not what was encrypted for")},
		"cut": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k1")}, func(_ *fake, task *fakeTask) {
			task.spec.Payload = task.spec.Payload[:10]
		}, poisoned("does not have the format")},
		"another's checkpoint": {pawl.DialOptions{Keyring: ring(t, "k1")}, pawl.DialOptions{Keyring: ring(t, "k1")},
			func(_ *fake, task *fakeTask) {
				task.check = []byte(`{"pawl_encrypted":"AQJrMQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}`)
			}, poisoned("checkpoint: it is not what was encrypted")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := start(t)
				producer := also(t, f, c.producer)
				if _, err := producer.Enqueue(t.Context(), pawl.RawTask{Type: "other", Payload: []byte(`{"to":"theirs"}`)}); err != nil {
					t.Fatal(err)
				}
				ref, err := producer.Enqueue(t.Context(), welcome{To: "ours"})
				if err != nil {
					t.Fatal(err)
				}
				f.set(func() {
					f.ready = slices.DeleteFunc(f.ready, func(x *fakeTask) bool { return x.id == "t1" })
					if c.change != nil {
						c.change(f, f.tasks[ref.ID])
					}
				})
				worker := also(t, f, c.worker)
				mux, handled := pawl.NewMux(), false
				mux.HandleFunc("mail.welcome", func(_ context.Context, c *pawl.Claim) error {
					handled = true
					var args welcome
					if err := c.Decode(&args); err != nil || args.To != "ours" {
						t.Errorf("the handler got %+v, %v", args, err)
					}
					return nil
				})
				work(t, worker, mux, pawl.WorkerConfig{Queues: pawl.Strict{"default", "elsewhere"}})
				synctest.Wait()
				f.set(func() { c.want(t, f.tasks[ref.ID]) })
				if f.task(t, ref.ID).state != pawlv1.State_STATE_SUCCEEDED && handled {
					t.Error("a handler ran for a payload that can't be decrypted")
				}
			})
		})
	}
}

// The retry of a request is the same on the wire, and so is a call with the same idempotency key. Otherwise the broker
// can't see that two payloads are equal.
func TestKeyringRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := sealedBy(t, ring(t, "k1"))
		to := "a"
		send := func(opts ...pawl.Option) []byte {
			t.Helper()
			if _, err := client.Enqueue(t.Context(), welcome{To: to}, opts...); err != nil {
				t.Fatal(err)
			}
			return f.enqueues[len(f.enqueues)-1][0].Payload
		}
		if bytes.Equal(send(), send()) {
			t.Error("two tasks with the same payload have the same ciphertext")
		}
		for what, opt := range map[string]pawl.Option{
			"request id": pawl.RequestID("0192f3a1-0000-7000-8000-000000000001"), "idempotency key": pawl.IdempotencyKey("a"),
			"unique payload": pawl.Unique(pawltype.UniqueOpts{}),
		} {
			first := send(opt)
			if !bytes.Equal(first, send(opt)) {
				t.Errorf("%s: a repeat has a different ciphertext", what)
			}
			if bytes.Equal(first, send(opt, pawl.Queue("other"))) {
				t.Errorf("%s: a task in another queue has the same ciphertext", what)
			}
			to = "b" // with the same salt both would have the same key and nonce, which would reveal their difference
			if head := 2 + len("k1") + 24; bytes.Equal(first[:head], send(opt)[:head]) {
				t.Errorf("%s: another payload is encrypted with the same salt", what)
			}
			to = "a"
		}
		f.set(func() {
			f.after = func(method string) error {
				if method == "EnqueueBatch" || method == "Enqueue" {
					f.after = nil
					return errUnavailable
				}
				return nil
			}
		})
		before := len(f.enqueues)
		send()
		if n := len(f.enqueues); n != before+2 || !bytes.Equal(f.enqueues[n-1][0].Payload, f.enqueues[n-2][0].Payload) {
			t.Errorf("a retry sent a different ciphertext (%d requests)", n-before)
		}
	})
}

// Payloads that the broker would refuse if it could read them are refused by the client.
func TestKeyringChecksJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := sealedBy(t, ring(t, "k1"))
		_, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "a", Payload: []byte("{")})
		wantErr(t, "broken JSON", err, pawltype.ErrInvalidArgument)
		if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "a", Payload: []byte("{"), ContentType: "text/plain"}); err != nil {
			t.Error(err)
		}
		if len(f.enqueues) != 1 {
			t.Errorf("got %d requests, want 1 without the invalid payload", len(f.enqueues))
		}
		out, err := client.EnqueueBatch(t.Context(), []pawl.Item{{Args: pawl.RawTask{Type: "a", Payload: []byte("{")}}, {Args: welcome{}}})
		if err != nil || !errors.Is(out[0].Err, pawltype.ErrInvalidArgument) || out[1].Ref == nil {
			t.Errorf("a batch with an invalid payload: %+v, %v, want only that task refused", out, err)
		}
	})
}

func TestNewKeyring(t *testing.T) {
	good := payloadKey("k1")
	for what, keys := range map[string][]keyring.Key{
		"none": nil, "no id": {{Secret: good.Secret}}, "a space": {{ID: "a b", Secret: good.Secret}},
		"a long id": {{ID: strings.Repeat("a", 65), Secret: good.Secret}}, "a short secret": {{ID: "a", Secret: good.Secret[:31]}},
		"twice": {good, good}, "too many": slices.Repeat([]keyring.Key{good}, 101),
	} {
		if _, err := keyring.New(keyring.Config{Keys: keys}); !errors.Is(err, pawltype.ErrInvalidArgument) {
			t.Errorf("%s: got %v, want ErrInvalidArgument", what, err)
		} else if strings.Contains(err.Error(), string(good.Secret[:8])) {
			t.Errorf("%s: the error reveals the secret: %v", what, err)
		}
	}
	for contentType, want := range map[string]string{"": "-", "application/json": "-", "application/vnd.pawl.encrypted; key=k1": "k1",
		"application/vnd.pawl.encrypted": "", "application/vnd.pawl.encrypted2; key=k1": "-"} {
		id, ok := keyring.EncryptedWith(contentType)
		if !ok {
			id = "-"
		}
		if id != want {
			t.Errorf("EncryptedWith(%q) = %q, want %q", contentType, id, want)
		}
	}
}
