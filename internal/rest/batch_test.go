package rest

import (
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/apijson"
)

// A task that can't be decoded is refused individually, wherever in it the reader stopped. The tasks after it are read.
func TestRefusedItemsOfABatch(t *testing.T) {
	read := func(items ...string) (*batch[*pawlv1.TaskSpec], error) {
		m := &batch[*pawlv1.TaskSpec]{field: "tasks", max: 100}
		body := `{"tasks":[` + strings.Join(items, ",") + `]}`
		return m, apijson.Read([]byte(body), &apijson.Budget{Left: 1 << 20}, apijson.MaxListed, func(r *apijson.Reader, name string) error {
			return m.items(r)
		})
	}
	const good = `{"type":"a","queue":"q"}`
	for bad, says := range map[string]string{
		`{"type":"a","nothing":{"a":[1,{"b":[]}]},"queue":"q"}`: "nothing: unknown field",
		`{"nothing":1}`: "nothing: unknown field",
		`{"type":"a","type":"b","queue":[[1],2]}`:                            "type: is given twice",
		`{"type":"a","retry":{"max_attempts":{"x":[1,2]}},"tags":["a","b"]}`: "retry.max_attempts: ",
		`{"type":"a","tags":["a",{"b":[1]},"c"],"queue":"q"}`:                "tags: ",
		`7`:                 "body: 7 is not an object",
		`"text"`:            `body: "text" is not an object`,
		`[{"type":"a"},[]]`: "is not an object",
		`null`:              "body: null is not an object",
		`{"type":"a","then":` + strings.Repeat(`[{"then":`, 40) + `1` + strings.Repeat(`}]`, 40) + `}`: "then",
		`{"type":"a","payload":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`:         "nested deeper than 1000",
		`{"type":"\ud800"}`: "type: has half of a surrogate pair",
	} {
		m, err := read(good, bad, good, bad, bad, good)
		if err != nil || len(m.good()) != 3 || len(m.refused) != 6 {
			t.Errorf("%.80s: %d of %d tasks are good, want 3 of 6 (%v)", bad, len(m.good()), len(m.refused), err)
			continue
		}
		for i, e := range m.refused {
			if (e != nil) != (i == 1 || i == 3 || i == 4) || e != nil && !strings.Contains(e.GetMessage(), says) {
				t.Errorf("%.80s: item %d: %v, want %q for items 1, 3 and 4", bad, i, e, says)
			}
		}
	}
	for _, bad := range []string{`{"type":"a"`, `{"type" "a"}`, `{"type":"a",}`, `{"nothing":[1,}`, `{"nothing":01}`, `{"type":tru}`, ``} {
		if m, err := read(good, bad, good); err == nil || !strings.Contains(err.Error(), "not JSON") {
			t.Errorf("%s: %v and %d tasks, want the whole batch refused", bad, err, len(m.good()))
		}
	}
	m := &batch[*pawlv1.TaskSpec]{field: "tasks", max: 1}
	made := &apijson.Budget{Left: 320 + 2*64} // enough for the list, but not for the task itself
	err := apijson.Read([]byte(`{"tasks":[`+good+`]}`), made, apijson.MaxListed, func(r *apijson.Reader, name string) error {
		return m.items(r)
	})
	if err != nil || len(m.refused) != 1 || m.refused[0] == nil {
		t.Errorf("task that exceeds the memory budget: %v, %v, want it refused individually", m.refused, err)
	}
}
