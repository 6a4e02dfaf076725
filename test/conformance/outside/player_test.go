package outside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
)

const (
	storyTimeout = 2 * time.Minute
	pollStep     = 15 * time.Millisecond
)

// refusal is a refused call, in REST's words.
type refusal map[string]any

func (r refusal) Error() string { return fmt.Sprint(map[string]any(r)) }

// driver is an SDK, or REST, as a player sees it.
type driver interface {
	// call makes a call. Its answer is in REST's words, as decoded JSON; a refusal is an error of type refusal.
	call(ctx context.Context, do string, with map[string]any) (any, error)
	// work runs a worker until ctx is done, and drains it.
	work(ctx context.Context, w workerSpec, handle func(run handling) ending) error
}

type workerSpec struct {
	queues       any // a list, or a map of weights
	types        []string
	name         string
	concurrency  int
	drainTimeout time.Duration
}

// handling is a task in its handler.
type handling interface {
	claim() map[string]any
	parent() (any, error)
	progress(percent float64, message string) error
	checkpoint(v any) error // the error is an interruption if the handler is to stop
	lastCheckpoint() (any, error)
	step(name string, fn func() (any, error)) (any, error)
	once(key string, fn func() (any, error)) (any, error)
	interrupted() error // waits until the handler is to stop
}

// interruption is why a handler must stop: cancelled, draining, timed_out.
type interruption string

func (i interruption) Error() string { return string(i) }

// ending is how a handler ended.
type ending struct {
	kind        string // returns, fails, dead, discards, poisons, snoozes
	message     string
	result      any
	hasResult   bool
	contentType string
	delay       time.Duration
	err         error // instead of the others: the error of a call
}

// play is a story in progress.
type play struct {
	driver driver
	ctx    context.Context
	uuid   string
	mu     sync.Mutex
	ids    map[string]string
	gates  map[string]chan struct{}
	runs   map[string]int
	wrong  error // found by a handler
	failed chan struct{}
	stops  []func() error
	script map[string][]any
}

// tell plays a story. It returns an error that says where the story was not true.
func playStory(ctx context.Context, f driver, s story) error {
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	p := &play{driver: f, ctx: ctx, uuid: uuid.NewString(), ids: map[string]string{}, gates: map[string]chan struct{}{},
		runs: map[string]int{}, failed: make(chan struct{}), script: map[string][]any{}}
	var err error
	for i, st := range s.Steps {
		if err = p.step(st); err != nil {
			err = fmt.Errorf("step %d, %s: %w", i+1, st.Do, err)
			break
		}
	}
	stopped := p.stop()
	if p.wrong != nil {
		return p.wrong
	}
	if err := errors.Join(err, stopped); err != nil {
		return err
	}
	for typ, runs := range p.script {
		if p.runs[typ] != len(runs) {
			return fmt.Errorf("the handler of %q ran %d times, want %d", typ, p.runs[typ], len(runs))
		}
	}
	return nil
}

func (p *play) step(s step) error {
	with, _ := resolve(any(s.With), p.name).(map[string]any)
	switch s.Do {
	case "worker":
		p.start(with)
		return nil
	case "stop":
		return p.stop()
	case "open":
		p.open(text(with, "gate"))
		return nil
	case "await":
		return p.await(text(with, "gate"))
	}
	for {
		got, err := p.driver.call(p.ctx, s.Do, with)
		diff := p.judge(s, got, err)
		if diff == "" {
			return p.bind(s, got)
		}
		if !s.Until || p.ctx.Err() != nil {
			return errors.New(diff)
		}
		select {
		case <-time.After(pollStep):
		case <-p.failed:
			return errors.New(diff)
		}
	}
}

func (p *play) judge(s step, got any, err error) string {
	refused, _ := errors.AsType[refusal](err)
	switch {
	case err != nil && (refused == nil || s.Refused == nil):
		return fmt.Sprintf("refused: %v", err)
	case s.Refused != nil && err == nil:
		return fmt.Sprintf("not refused, want %v: %v", s.Refused, got)
	case s.Refused != nil:
		return differs("refusal", resolve(s.Refused, p.name), map[string]any(refused))
	case s.Gives == nil:
		return ""
	}
	var want any
	if err := json.Unmarshal(s.Gives, &want); err != nil {
		return err.Error()
	}
	return differs("answer", resolve(want, p.name), got)
}

var inText = regexp.MustCompile(`\$\{[^}]*\}`)

// name returns what a text of a story stands for.
func (p *play) name(s string) (any, bool) {
	switch {
	case strings.HasPrefix(s, "$"):
		p.mu.Lock()
		defer p.mu.Unlock()
		id, ok := p.ids[s[1:]]
		return id, ok
	case strings.Contains(s, "${"):
		p.mu.Lock()
		defer p.mu.Unlock()
		return inText.ReplaceAllStringFunc(s, func(name string) string { return p.ids[name[2:len(name)-1]] }), true
	case s == "%uuid":
		return p.uuid, true
	case s == "%1MiB":
		return strings.Repeat("x", 1<<20), true
	}
	return nil, false
}

// bind names the ids in an answer.
func (p *play) bind(s step, got any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	object, _ := got.(map[string]any)
	name := func(name string, of any, key string) error {
		entry, _ := of.(map[string]any)
		id, _ := entry[key].(string)
		if id == "" {
			return fmt.Errorf("no %s for %q: %v", key, name, got)
		}
		p.ids[name] = id
		return nil
	}
	list := func(names []string, of any) (err error) {
		items, _ := of.([]any)
		if len(items) != len(names) {
			return fmt.Errorf("%d names for %v", len(names), got)
		}
		for i := range names {
			err = errors.Join(err, name(names[i], items[i], "task_id"))
		}
		return err
	}
	var err error
	switch as := s.As.(type) {
	case string:
		key := "task_id"
		for _, other := range []string{"group_id", "operation_id"} {
			if _, ok := object[other]; ok && object["task_id"] == nil {
				key = other
			}
		}
		err = name(as, got, key)
	case []any:
		var names []string
		for _, each := range as {
			names = append(names, fmt.Sprint(each))
		}
		err = list(names, got)
	}
	if s.Members != nil {
		err = errors.Join(err, list(s.Members, object["tasks"]))
	}
	return err
}

func (p *play) gate(name string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gates[name] == nil {
		p.gates[name] = make(chan struct{})
	}
	return p.gates[name]
}

func (p *play) open(name string) {
	g := p.gate(name)
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-g:
	default:
		close(g)
	}
}

func (p *play) await(name string) error {
	select {
	case <-p.gate(name):
		return nil
	case <-p.failed:
		return errors.New("a handler has failed")
	case <-p.ctx.Done():
		return fmt.Errorf("the gate %q was not opened in time", name)
	}
}

// start runs a worker in the background.
func (p *play) start(with map[string]any) {
	w := workerSpec{queues: with["queues"], name: text(with, "name"), concurrency: 4, drainTimeout: 10 * time.Second}
	if n, ok := with["concurrency"].(float64); ok {
		w.concurrency = int(n)
	}
	if with["drain_timeout"] != nil {
		w.drainTimeout = length(with["drain_timeout"])
	}
	handlers, _ := with["handlers"].(map[string]any)
	for typ, runs := range handlers {
		w.types = append(w.types, typ)
		p.script[typ], _ = runs.([]any)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(p.ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.driver.work(ctx, w, p.handle) }()
	p.stops = append(p.stops, func() error { cancel(); return <-ended })
}

func (p *play) stop() (err error) {
	for _, stop := range p.stops {
		err = errors.Join(err, stop())
	}
	p.stops = nil
	return err
}

// handle is the handler of all types.
func (p *play) handle(h handling) ending {
	typ, _ := h.claim()["type"].(string)
	p.mu.Lock()
	n := p.runs[typ]
	p.runs[typ]++
	p.mu.Unlock()
	defer p.open(typ + " ended")
	if n >= len(p.script[typ]) {
		return p.found(fmt.Errorf("the handler of %q ran %d times, want %d", typ, n+1, len(p.script[typ])))
	}
	actions, _ := p.script[typ][n].([]any)
	last := ending{kind: "returns"}
	for i, a := range actions {
		action, _ := resolve(a, p.name).(map[string]any)
		if why := text(action, "interrupted"); why != "" && action["checkpoint"] == nil {
			err := h.interrupted()
			if wrong := isInterruption(why, err); wrong != nil {
				return p.found(wrong)
			}
			last = ending{err: err}
			continue
		}
		end, over, err := p.act(h, action)
		if err != nil {
			return p.found(fmt.Errorf("run %d of %q, action %d: %w", n+1, typ, i+1, err))
		}
		if over {
			return end
		}
	}
	return last
}

// found records what is wrong, and ends the run.
func (p *play) found(err error) ending {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wrong == nil {
		p.wrong = err
		close(p.failed)
	}
	return ending{kind: "dead", message: err.Error()}
}

// act performs an action, and reports whether the run is over.
func (p *play) act(h handling, a map[string]any) (end ending, over bool, err error) {
	for _, kind := range []string{"fails", "dead", "discards", "poisons"} {
		if message, ok := a[kind].(string); ok && a["step"] == nil {
			return ending{kind: kind, message: message, delay: length(a["retry_in"])}, true, nil
		}
	}
	switch {
	case a["snoozes"] != nil:
		return ending{kind: "snoozes", delay: length(a["snoozes"])}, true, nil
	case a["returns"] != nil:
		return ending{kind: "returns", result: a["returns"], hasResult: true, contentType: text(a, "content_type")}, true, nil
	case a["sees"] != nil:
		return end, false, different(differs("claim", a["sees"], h.claim()))
	case a["opens"] != nil:
		p.open(text(a, "opens"))
	case a["holds"] != nil:
		return end, false, p.await(text(a, "holds"))
	case a["progress"] != nil:
		percent, _ := a["progress"].(float64)
		return end, false, h.progress(percent, text(a, "message"))
	case a["step"] != nil || a["once"] != nil:
		return p.effect(h, a)
	case a["checkpoint"] != nil:
		err := h.checkpoint(a["checkpoint"])
		if why := text(a, "interrupted"); why != "" {
			return ending{err: err}, true, isInterruption(why, err)
		}
		return end, false, err
	default:
		return end, false, p.reads(h, a)
	}
	return end, false, nil
}

// reads performs the actions that compare stored values.
func (p *play) reads(h handling, a map[string]any) error {
	if want, ok := a["last_checkpoint"]; ok {
		got, err := h.lastCheckpoint()
		return errors.Join(err, different(differs("checkpoint", want, got)))
	}
	if want, ok := a["parent"]; ok {
		got, err := h.parent()
		return errors.Join(err, different(differs("parent", want, got)))
	}
	return fmt.Errorf("no such action: %v", a)
}

// effect runs a step, or an effect under a once key.
func (p *play) effect(h handling, a map[string]any) (end ending, over bool, err error) {
	ran := false
	fn := func() (any, error) {
		ran = true
		if message, ok := a["fails"].(string); ok {
			return nil, errors.New(message)
		}
		return a["runs"], nil
	}
	var got any
	if a["step"] != nil {
		got, err = h.step(text(a, "step"), fn)
	} else {
		got, err = h.once(text(a, "once"), fn)
	}
	_, fails := a["fails"]
	if want := a["runs"] != nil || fails; ran != want {
		return end, false, fmt.Errorf("ran: %v, want %v", ran, want)
	}
	if fails {
		return ending{err: err}, true, nil
	}
	return end, false, errors.Join(err, different(differs("effect", a["gives"], got)))
}

func isInterruption(want string, err error) error {
	if why, ok := errors.AsType[interruption](err); !ok || string(why) != want {
		return fmt.Errorf("got %v, want the interruption %q", err, want)
	}
	return nil
}

func different(diff string) error {
	if diff == "" {
		return nil
	}
	return errors.New(diff)
}

func text(with map[string]any, key string) string {
	s, _ := with[key].(string)
	return s
}

// length returns a duration of a story, 0 if there is none.
func length(v any) time.Duration {
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	if err != nil && s != "" {
		panic(err)
	}
	return d
}

func playStories(t *testing.T, player string, f driver) {
	features := readFeatures(t)
	for _, s := range readStories(t, player) {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if lacks := s.lacks(features, player); lacks != "" {
				t.Skipf("%s has no %s", player, lacks)
			}
			if err := playStory(t.Context(), f, s); err != nil {
				t.Errorf("%s\n%v", s.Says, err)
			}
		})
	}
}
