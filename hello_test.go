package pawl_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

// What is wrong with a worker's configuration is told by Run, and the bounds themselves are right.
func TestWorkersOutOfBounds(t *testing.T) {
	_, client := start(t)
	ended, end := context.WithCancel(t.Context())
	end() // one that is right ends at once
	types := func(n int) *pawl.Mux {
		mux := pawl.NewMux()
		for i := range n {
			mux.HandleFunc(fmt.Sprint("t", i), func(context.Context, *pawl.Claim) error { return nil })
		}
		return mux
	}
	for what, x := range map[string]struct {
		mux   *pawl.Mux
		cfg   pawl.WorkerConfig
		field string // "": it is right
	}{
		"no types":        {types(0), pawl.WorkerConfig{}, "types"},
		"many types":      {types(1000), pawl.WorkerConfig{}, ""},
		"too many":        {types(1001), pawl.WorkerConfig{}, "types"},
		"no slots":        {types(1), pawl.WorkerConfig{Concurrency: -1}, "concurrency"},
		"too many slots":  {types(1), pawl.WorkerConfig{Concurrency: 1 << 20}, "concurrency"},
		"a short lease":   {types(1), pawl.WorkerConfig{Lease: time.Millisecond}, "lease"},
		"a long lease":    {types(1), pawl.WorkerConfig{Lease: 1000 * time.Hour}, "lease"},
		"negative bytes":  {types(1), pawl.WorkerConfig{MaxBytes: -1}, "max_bytes"},
		"the longest":     {types(1), pawl.WorkerConfig{Name: strings.Repeat("n", 256)}, ""},
		"a longer name":   {types(1), pawl.WorkerConfig{Name: strings.Repeat("n", 257)}, "worker"},
		"not UTF-8":       {types(1), pawl.WorkerConfig{Name: "\xff"}, "worker"},
		"a wrong queue":   {types(1), pawl.WorkerConfig{Queues: pawl.Strict{""}}, "queues"},
		"without queues":  {types(1), pawl.WorkerConfig{Queues: pawl.Strict{}}, "queues"},
		"all by default":  {types(1), pawl.WorkerConfig{}, ""},
		"one slot, named": {types(1), pawl.WorkerConfig{Concurrency: 1, Name: "w", Lease: time.Minute, MaxBytes: 1}, ""},
	} {
		err := pawl.NewWorker(client, x.mux, x.cfg).Run(ended)
		refused, _ := errors.AsType[*pawltype.Error](err)
		if (err == nil) != (x.field == "") || err != nil && (refused == nil || refused.Field != x.field) {
			t.Errorf("%s: got %v, want field %q", what, err, x.field)
		}
	}
}
