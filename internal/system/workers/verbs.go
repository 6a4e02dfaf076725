package workers

import (
	"context"
	"time"

	"github.com/pawlq/pawl/internal/task"
	"github.com/pawlq/pawl/internal/verb"
)

// Verbs are the calls on workers that are quiet.
var Verbs verb.Table[*Workers]

var (
	// MakeQuiet has a worker take no new tasks, and Resume lets it take tasks again. Resume reports whether it was quiet.
	MakeQuiet = verb.New(&Verbs, verb.SystemRule("quiet-worker"),
		func(s *Workers, ctx context.Context, q Quieting) (Quiet, error) {
			return s.QuietWorker(ctx, q.By, q.Worker, q.Called, q.For)
		})
	Resume = verb.New(&Verbs, verb.SystemRule("resume-worker"),
		func(s *Workers, ctx context.Context, q Quieting) (bool, error) {
			return s.ResumeWorker(ctx, q.By, q.Worker)
		})
)

// Quieting is a call on a worker.
type Quieting struct {
	Worker Name
	Called string
	By     task.Author
	For    time.Duration // how long the worker is quiet
}
