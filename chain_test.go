package pawl_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

type unsayable struct{ F func() }

func (unsayable) TaskType() string { return "unsayable" }

// An option that a follow-up task can't have makes the enqueue fail with an error that names its position.
func TestThenRefusals(t *testing.T) {
	client, err := pawl.Dial("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for field, then := range map[string]pawl.Option{
		"then[0].type":         pawl.Then(pawl.RawTask{}),
		"then[0].then[0].type": pawl.Then(pawl.RawTask{Type: "a"}, pawl.Then(pawl.RawTask{})),
		"then[0].args":         pawl.Then(nil),
	} {
		_, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "a"}, then)
		if e, ok := errors.AsType[*pawltype.Error](err); !ok || e.Field != field {
			t.Errorf("%s: got %v, want an error of that field", field, err)
		}
	}
	if _, err := client.Enqueue(t.Context(), pawl.RawTask{Type: "a"}, pawl.Then(unsayable{})); err == nil || !strings.Contains(err.Error(),
		`then[0]: payload of type "unsayable"`) {
		t.Errorf("a payload that can't be marshaled: %v", err)
	}
	_, err = client.EnqueueGroup(t.Context(), pawl.GroupSpec{Tasks: []pawl.Item{{Args: pawl.RawTask{Type: "a"}}, {Args: pawl.RawTask{}}}})
	if e, ok := errors.AsType[*pawltype.Error](err); !ok || e.Field != "tasks[1].type" {
		t.Errorf("a group with an invalid task: %v, want an error of tasks[1].type", err)
	}
}

func TestParentResult(t *testing.T) {
	for want, p := range map[string]*pawltype.Parent{
		"7":                  {TaskID: "t", Result: []byte("7")},
		"8":                  {TaskID: "t", Result: []byte("8"), ContentType: "application/json"},
		"0":                  {TaskID: "t"},
		"has no parent":      nil,
		"too large":          {TaskID: "t", Omitted: true},
		`"text/plain"`:       {TaskID: "t", Result: []byte("7"), ContentType: "text/plain"},
		"cannot unmarshal":   {TaskID: "t", Result: []byte(`"x"`)},
		"unexpected end of ": {TaskID: "t", Result: []byte(`{`)},
	} {
		n := 0
		err := (&pawl.Claim{ID: "c", Parent: p}).ParentResult(&n)
		if ok := want == strconv.Itoa(n) && err == nil; ok != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: ParentResult = %d, %v", want, n, err)
		}
	}
}
