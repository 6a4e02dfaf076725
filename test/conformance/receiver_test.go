package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	verifier "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pawlq/pawl/internal/system/webhooks"
	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
	"github.com/pawlq/pawl/internal/webhook"
)

// receiver is a program that receives webhooks: a server in memory. A path that ends in a number is answered with that
// status (3xx with a redirect), and one that ends in "hangs" never. A query of "after" is sent as Retry-After.
type receiver struct {
	pipe *bufconn.Listener

	mu      sync.Mutex
	secrets map[string][]string // by path; each must have signed
	got     []webhookRequest
	tries   []webhookRequest // requests that were answered with an error
	bad     []string
}

// webhookRequest is a request that delivers a notice.
type webhookRequest struct {
	ID, Path   string
	At         time.Time
	Signatures int
	Body       notice
}

// notice is the body of a request: the fields of the contract, and no others.
type notice struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      struct {
		Namespace   string       `json:"namespace"`
		Webhook     string       `json:"webhook"`
		Queue       string       `json:"queue"`
		Count       int64        `json:"count"`
		FirstAt     time.Time    `json:"first_at"`
		LastAt      time.Time    `json:"last_at"`
		Fingerprint string       `json:"fingerprint"`
		Tasks       []deadNotice `json:"tasks"`
		Breakers    []heldNotice `json:"breakers"`
		Schedules   []tickNotice `json:"schedules"`
		Depth       int64        `json:"depth"`
		DepthOver   int64        `json:"depth_over"`
		WaitOver    float64      `json:"wait_over_seconds"`
		OldestWait  float64      `json:"oldest_wait_seconds"`
		OverSince   time.Time    `json:"over_since"`
	} `json:"data"`
}

// deadNotice is the notice of a dead letter.
type deadNotice struct {
	TaskID  string    `json:"task_id"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Error   string    `json:"error"`
	Attempt int       `json:"attempt"`
	At      time.Time `json:"at"`
}

// heldNotice is the notice of a breaker.
type heldNotice struct {
	Type   string    `json:"type"`
	Reason string    `json:"reason"`
	Error  string    `json:"error"`
	At     time.Time `json:"at"`
}

// tickNotice is the notice of a schedule that missed its time.
type tickNotice struct {
	Schedule string    `json:"schedule"`
	Type     string    `json:"type"`
	Reason   string    `json:"reason"`
	Ticks    int       `json:"ticks"`
	At       time.Time `json:"at"`
}

// hookURL returns the URL of a path of the receiver.
func hookURL(path string) string { return "http://receiver.test" + path }

func (r *receiver) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return r.pipe.DialContext(ctx)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	code := r.take(q, body, err)
	if after := q.URL.Query().Get("after"); after != "" {
		w.Header().Set("Retry-After", after)
	}
	switch {
	case code == 0:
		<-q.Context().Done()
	case code >= 400:
		http.Error(w, "no", code)
	default:
		if code >= 300 {
			w.Header().Set("Location", hookURL("/elsewhere"))
		}
		w.WriteHeader(code)
	}
}

// take records a request, and returns the status of the answer; 0: no answer.
func (r *receiver) take(q *http.Request, body []byte, err error) (code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := webhookRequest{ID: q.Header.Get("webhook-id"), Path: q.URL.Path, At: time.Now(),
		Signatures: len(strings.Fields(q.Header.Get("webhook-signature")))}
	if at := fmt.Sprint(got.At.Unix()); q.Header.Get("webhook-timestamp") != at {
		err = errors.Join(err, fmt.Errorf("sent at %s it says %s", at, q.Header.Get("webhook-timestamp")))
	}
	if err = errors.Join(err, r.verify(q, body), decode(body, &got.Body)); err != nil {
		r.bad = append(r.bad, fmt.Sprintf("%s: %v", body, err))
	}
	code = http.StatusNoContent
	if said, err := strconv.Atoi(path.Base(q.URL.Path)); err == nil {
		code = said
	} else if path.Base(q.URL.Path) == "hangs" {
		code = 0
	}
	if code >= 200 && code < 300 {
		r.got = append(r.got, got)
	} else {
		r.tries = append(r.tries, got)
	}
	return code
}

// verify checks the signatures with a library other than the sender's: one for each secret that signs.
func (r *receiver) verify(q *http.Request, body []byte) error {
	if len(r.secrets[q.URL.Path]) == 0 {
		return fmt.Errorf("nobody knows a secret of %s", q.URL.Path)
	}
	for _, secret := range r.secrets[q.URL.Path] {
		hook, err := verifier.NewWebhook(secret)
		if err == nil {
			err = hook.Verify(body, q.Header)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// requireSignatures sets the secrets with which all notices to a path must be signed from now on.
func (r *receiver) requireSignatures(path string, secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets[path] = secrets
}

// received returns what has arrived at a path since the last call. Anything that could not be verified fails the test.
func (w *world) received(path string) (bodies []notice) {
	w.Helper()
	for _, l := range w.requestsTo(path) {
		bodies = append(bodies, l.Body)
	}
	return bodies
}

// requestsTo is like received, but returns the whole requests.
func (w *world) requestsTo(path string) []webhookRequest {
	w.Helper()
	return w.take(path, &w.testNode.receiver.got)
}

// refusedRequests returns the requests to a path that were answered with an error.
func (w *world) refusedRequests(path string) []webhookRequest {
	w.Helper()
	return w.take(path, &w.testNode.receiver.tries)
}

func (w *world) take(path string, from *[]webhookRequest) (some []webhookRequest) {
	w.Helper()
	r := w.testNode.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	var rest []webhookRequest
	for _, l := range *from {
		if l.Path != path {
			rest = append(rest, l)
			continue
		}
		if l.ID == "" {
			w.Errorf("a notification has no id: %+v", l)
		}
		some = append(some, l)
	}
	*from = rest
	for _, bad := range r.bad {
		w.Errorf("a notification can't be verified: %s", bad)
	}
	return some
}

// onlyHooks are the webhooks of a cluster with a single node: package node assembles the same parts over a router.
type onlyHooks struct {
	*webhooks.Webhooks
	*webhooks.Dispatcher
	*webhook.Sender
}

func (o onlyHooks) Check(field, ns, url string) error { return o.Sender.Check(field, ns, url) }

func (o onlyHooks) tellShards(ctx context.Context, h webhooks.View, err error) (done webhooks.Done, _ error) {
	if err != nil {
		return done, err
	}
	done.Hook = h
	done.Unconfirmed, err = o.Webhooks.TellShards(ctx, "")
	return done, err
}

func (o onlyHooks) AddWebhook(ctx context.Context, c webhooks.Call) (webhooks.Done, error) {
	h, err := o.Webhooks.Add(ctx, c)
	return o.tellShards(ctx, h, err)
}

func (o onlyHooks) SetWebhook(ctx context.Context, c webhooks.Call) (webhooks.Done, error) {
	h, err := o.Webhooks.Set(ctx, c)
	return o.tellShards(ctx, h, err)
}

func (o onlyHooks) RotateWebhook(ctx context.Context, c webhooks.Call) (webhooks.Done, error) {
	h, err := o.Webhooks.Rotate(ctx, c)
	return o.tellShards(ctx, h, err)
}

func (o onlyHooks) PauseWebhook(ctx context.Context, c webhooks.Call) (webhooks.Done, error) {
	h, err := o.Webhooks.Pause(ctx, c)
	return o.tellShards(ctx, h, err)
}

func (o onlyHooks) ResumeWebhook(ctx context.Context, c webhooks.Call) (webhooks.Done, error) {
	h, err := o.Webhooks.Resume(ctx, c)
	return o.tellShards(ctx, h, err)
}

func (o onlyHooks) RemoveWebhook(ctx context.Context, c webhooks.Call) (webhooks.Done, error) {
	return o.tellShards(ctx, webhooks.View{}, o.Webhooks.Remove(ctx, c))
}

func (o onlyHooks) TestWebhook(ctx context.Context, by task.Author, ns, name string) (webhooks.Delivery, error) {
	return o.Dispatcher.Test(ctx, by, ns, name)
}

// openPost creates the sender of notices, with a receiver in memory. It may send plain HTTP, as to an allowed network.
// Only stories that expect notices run it, since it has timers.
func (h *testNode) openPost(t *testing.T, log *slog.Logger, parts *verb.Parts) {
	allow, err := webhook.ParseNetworks([]string{"*=10.0.0.0/8"})
	must(t, err)
	h.receiver = &receiver{pipe: bufconn.Listen(pipeBuffer), secrets: map[string][]string{}}
	sender := webhook.NewSender(webhook.Config{Allow: allow, Version: "test", Dial: h.receiver.dial})
	h.hooks = onlyHooks{h.control.Webhooks, webhooks.NewDispatcher(webhooks.DispatcherConfig{Webhooks: h.control.Webhooks,
		Send: sender.Send, Depths: h.depths, Logger: log}), sender}
	webhooks.DispatcherVerbs.Serve(h.hooks.Dispatcher, parts)
}

// depths returns the depths of the queues that match patterns.
func (h *testNode) depths(ctx context.Context, ns string, patterns []string, since bool) (all []webhooks.Depth, missing bool) {
	some, err := h.broker.Meters(ctx, dataShard, ns, patterns, since)
	for _, m := range some {
		d := webhooks.Depth{Queue: m.Queue, Ready: m.Ready}
		if m.Since != 0 {
			d.Wait = h.time().Sub(m.Since.Time())
		}
		all = append(all, d)
	}
	return all, err != nil
}

// receives starts the receiver and the sender, until the test ends.
func (w *world) receives() {
	srv := &http.Server{Handler: w.testNode.receiver}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = srv.Serve(w.testNode.receiver.pipe) })
	running.Go(func() { w.testNode.hooks.Run(ctx) })
	w.Cleanup(func() {
		stop()
		_ = srv.Close()
		running.Wait()
	})
}
