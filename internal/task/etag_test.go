package task_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

func TestETagsDiffer(t *testing.T) {
	was := task.Edited{{"run_at", int64(5)}, {"priority", task.Normal}, {"payload", []byte(`{"a":1}`)}}
	etag := was.ETag()
	for _, c := range []struct {
		now  task.Edited
		etag string
		want string // "": it passes
	}{
		{was, etag, ""},
		{was, "", ""},
		{task.Edited{{"run_at", int64(5)}, {"priority", task.Normal}, {"payload", []byte(`{"a":1}`)}}, etag, ""},
		{task.Edited{{"run_at", int64(5)}, {"priority", task.High}, {"payload", []byte(`{"a":1}`)}}, etag,
			"if_etag: priority has changed in the meantime"},
		{task.Edited{{"run_at", int64(6)}, {"priority", task.High}, {"payload", []byte(`{"a":2}`)}}, etag,
			"if_etag: run_at, priority and payload have changed in the meantime"},
		{was[:2], etag, "if_etag: any field may have changed in the meantime"},
		{was, "a b", `if_etag: "a b" is not an etag`},
		{was, etag[:5], "is not an etag"},
		{was, strings.Repeat("A", 10), "is not an etag"}, // 7 bytes
		{was, strings.Repeat("A", 256), "if_etag: any field may have changed in the meantime"},
		{was, strings.Repeat("A", 320), "is not an etag"},
	} {
		err := c.now.Check(c.etag)
		if c.want == "" {
			if err != nil {
				t.Errorf("%v with etag %q: %v, want no error", c.now, c.etag, err)
			}
			continue
		}
		code := task.ErrConflict
		if strings.Contains(c.want, "not an etag") {
			code = task.ErrInvalidArgument
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, code) {
			t.Errorf("%v with etag %q: %v, want %q", c.now, c.etag, err, c.want)
		}
	}
}
