package explain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// randomTakers returns a random Workers of a queue. Times are at the bounds, or one step beyond them.
func randomTakers(r *rand.Rand, now store.Time) *Workers {
	some := func(names ...string) (out []string) {
		for _, name := range names {
			if r.IntN(2) == 0 {
				out = append(out, name)
			}
		}
		return out
	}
	few := func() int { return max(0, r.IntN(4)-2) }
	t := &Workers{Workers: task.QueueWorkers{Held: int64(few()), Known: []time.Duration{0, time.Minute, time.Hour}[r.IntN(3)]}}
	if r.IntN(6) == 0 {
		t.Workers.Silent = []string{"n2"}
	}
	if r.IntN(3) == 0 {
		t.Workers.Away = []string{"n3"}
	}
	for range r.IntN(3) {
		g := task.WorkerGroup{Types: some("x", "y"), Untold: r.IntN(5) == 0, Connected: few(), Callers: few(),
			Quiet: few(), Draining: few()}
		if g.Quiet > 0 {
			g.QuietID, g.Named = "Q", []string{"a", ""}[r.IntN(2)]
		}
		t.Workers.Groups = append(t.Workers.Groups, g)
	}
	at := func() store.Time {
		ago := []time.Duration{0, time.Second, t.Workers.Known - 1, t.Workers.Known, askedLately, askedLately + 1}
		return now.Add(-max(0, ago[r.IntN(len(ago))]))
	}
	for range r.IntN(3) {
		a := Poll{Types: some("x", "y"), Waiting: r.IntN(5) == 0, Last: at(), Worker: "w"}
		if r.IntN(2) == 0 {
			a.Called, a.Caller = at(), []string{"a", "b", ""}[r.IntN(3)]
		}
		t.Polls = append(t.Polls, a)
	}
	return t
}

// workersVerdict returns, condition by condition, what code should return for one type.
func workersVerdict(t *Workers, typ string, claimed int64, now store.Time) task.Why {
	var waits, takes, others, unsure bool
	quiet := map[string]bool{}
	for _, g := range t.Workers.Groups {
		if g.Quiet > 0 && g.Named != "" {
			quiet[g.Named] = true
		}
		if works := g.Connected > 0 || g.Callers > 0; works {
			fits := len(g.Types) == 0 || slices.Contains(g.Types, typ)
			unsure = unsure || g.Untold
			takes = takes || !g.Untold && fits
			others = others || !g.Untold && !fits
		}
	}
	for _, a := range t.Polls {
		// The nodes would report a worker that polled as long as they remember it, unless its last single call was for another queue.
		forgotten := now.Sub(a.Last) <= askedLately && now.Sub(a.Last) >= t.Workers.Known
		called := a.Called != 0 && now.Sub(a.Called) <= askedLately && !quiet[a.Caller]
		if !a.Waiting && !forgotten && !called {
			continue
		}
		fits := len(a.Types) == 0 || slices.Contains(a.Types, typ)
		waits = waits || fits && a.Waiting
		takes = takes || fits
		others = others || !fits
	}
	switch {
	case waits:
		return ""
	case takes:
		return task.WhyWorkersBusy
	case unsure, len(t.Workers.Silent) > 0, !others && claimed > t.Workers.Held:
		return task.WhyWorkersUnknown
	case others:
		return task.WhyNoWorkerForType
	}
	return task.WhyNoWorker
}

// Whatever is known of workers, the verdict is the model's, and has a text.
func TestVerdictAboutWorkers(t *testing.T) {
	now := store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	seen := map[task.Why]int{}
	for seed := range uint64(30_000) {
		r := rand.New(rand.NewPCG(seed, 0)) // #nosec G404 -- a test that can be repeated
		takers, claimed := randomTakers(r, now), int64(r.IntN(3))
		want := workersVerdict(takers, "x", claimed, now)
		seen[want]++
		why := takers.why("mail", "x", claimed, now)
		var got task.Why
		if why != nil {
			got = why.Code
		}
		if got != want {
			t.Fatalf("seed %d: %+v with %d claimed tasks has the verdict %q, want %q", seed, *takers, claimed, got, want)
		}
		if why != nil && (why.Detail == "" || why.Change == "") {
			t.Fatalf("seed %d: verdict %s has no text: %+v", seed, got, why)
		}
	}
	for _, code := range []task.Why{"", task.WhyWorkersBusy, task.WhyWorkersUnknown, task.WhyNoWorkerForType, task.WhyNoWorker} {
		if seen[code] < 100 {
			t.Errorf("the verdict %q was drawn only %d times: %s", code, seen[code], fmt.Sprint(seen))
		}
	}
}
