package apijson

import (
	"strings"
	"testing"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// A document is one object. A refusal that is about all of it has the name of the document.
func TestDecode(t *testing.T) {
	for text, want := range map[string]string{
		` {"type":"a","then":[{"type":"b"}]} `: "",
		`{}`:                                   "",
		"":                                     "doc: is empty, want a JSON object",
		" \n":                                  "doc: is empty, want a JSON object",
		`[]`:                                   "doc: is not a JSON object",
		`null`:                                 "doc: is not a JSON object",
		`{"type":"a"`:                          "doc: not JSON: it ends within a value, after 11 bytes",
		`{"type":"a"}{}`:                       "doc: not JSON: there is data after the object, which ends at byte 12",
		"{\"type\":\"\xff\"}":                  "doc: not JSON: it is not UTF-8",
		`{"\ud800":1}`:                         "doc: the name of a field has half of a surrogate pair",
		`{"then":[{"\ud800":1}]}`:              "then[0]: the name of a field has half of a surrogate pair",
		`{"then":[{"type":7}]}`:                "then[0].type: 7 is not a string",
		`{"tags":[` + strings.Repeat(`"",`, 1<<20) + `]`: "tags: more than 1000 items",
		strings.Repeat(`{"then":[`, 100):                 "nested deeper than 64",
	} {
		err := Decode("doc", []byte(text), &pawlv1.TaskSpec{})
		if e, ok := task.AsError(err); want == "" && err != nil || want != "" && (!ok || !strings.Contains(e.Message, want) ||
			!strings.HasPrefix(e.Message, e.Field+": ")) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// A file of schedules has an owner and a list, each item of which is read like the body that creates a schedule.
func TestDecodeSchedules(t *testing.T) {
	many := func(n int) string {
		return `{"schedules":[` + strings.TrimSuffix(strings.Repeat(`{"name":"s"},`, n), ",") + `]}`
	}
	owner, all, err := DecodeSchedules([]byte(`{"schedules":[{"name":"a","every":"1h","task":{"type":"t"}},{"name":"b"}],"owner":"o"}`))
	if err != nil || owner != "o" || len(all) != 2 || all[0].GetTask().GetType() != "t" || all[1].GetName() != "b" {
		t.Errorf("DecodeSchedules = %q, %v, %v", owner, all, err)
	}
	if _, all, err := DecodeSchedules([]byte(many(MaxFileSchedules))); err != nil || len(all) != MaxFileSchedules {
		t.Errorf("a file of %d schedules: %d, %v", MaxFileSchedules, len(all), err)
	}
	for text, want := range map[string]string{
		many(MaxFileSchedules + 1): "schedules: more than 10000",
		many(0):                    "schedules: is required, with 1 to 10000 schedules",
		`{"owner":"o"}`:            "schedules: is required",
		``:                         "file: is empty",
		`[{"name":"a"}]`:           "file: is not a JSON object",
		`{"owner":null,"schedules":[{"name":"a"}]}`:               "owner: null is not a string",
		`{"owner":"","schedules":[{"name":"a"}]}`:                 "owner: is empty: leave it out for none",
		`{"schedules":null}`:                                      "schedules: null is not a list",
		`{"schedules":[null]}`:                                    "schedules[0]: null is not an object",
		`{"schedules":[{"name":"a"}],"schedules":[{"name":"b"}]}`: "schedules: is given twice",
		`{"schedules":[{"name":"a"},{"name":"b","every":".5h"}]}`: `schedules[1].every: ".5h" is not a duration`,
		`{"schedules":[{"name":"a","if_etag":"e"}]}`:              "schedules[0].if_etag: unknown field",
		`{"scedules":[]}`:                                         "scedules: unknown field",
	} {
		_, _, err := DecodeSchedules([]byte(text))
		if e, ok := task.AsError(err); !ok || !strings.HasPrefix(e.Message, want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}
