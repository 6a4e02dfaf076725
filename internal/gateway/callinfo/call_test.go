package callinfo

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
	"github.com/pawlq/pawl/internal/task"
)

// For each shard, a response reports the latest state.
func TestLatestStampIsReturned(t *testing.T) {
	_, c := Begin(t.Context(), task.InterfaceGRPC, "test")
	for _, s := range []struct {
		at   broker.Stamp
		want string
	}{
		{broker.Stamp{Shard: 1}, ""}, {broker.Stamp{Shard: 1, Index: 5, Time: 5}, "1 5 5"}, {broker.Stamp{Shard: 1, Index: 4, Time: 6},
			"1 5 5"},
		{broker.Stamp{Shard: 1, Index: 5, Time: 7}, "1 5 7"}, {broker.Stamp{Shard: 2, Index: 1, Time: 1}, "1 5 7 2 1 1"},
		{broker.Stamp{Shard: 2, Index: 2, Time: 9}, "1 5 7 2 2 9"},
	} {
		c.noteStamp(s.at)
		var got []string
		for _, at := range c.stamps {
			got = append(got, fmt.Sprint(at.Shard, at.Index, int64(at.Time)))
		}
		if strings.Join(got, " ") != s.want {
			t.Errorf("stamps after %+v = %q, want %q", s.at, got, s.want)
		}
	}
}

// Without a call nobody is authorized: a handler that was reached past Begin must not run with anybody's rights.
func TestContextWithoutACall(t *testing.T) {
	for what, read := range map[string]func(){
		"rights":    func() { Of(t.Context()) },
		"namespace": func() { Namespace(t.Context()) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: read from a context without a call", what)
				}
			}()
			read()
		}()
	}
}
