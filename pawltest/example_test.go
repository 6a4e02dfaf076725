package pawltest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltest"
	"github.com/pawlq/pawl/pawltype"
)

type welcome struct {
	To string `json:"to"`
}

func (welcome) TaskType() string { return "mail.welcome" }

// send is the handler under test.
func send(_ context.Context, t *pawl.Task[welcome]) error {
	if t.Args.To == "" {
		return pawl.DeadLetter(errors.New("nobody to write to"))
	}
	return t.SetResult("sent")
}

func ExampleRunFunc() {
	TestSend := func(t *testing.T) {
		result := pawltest.RunFunc(t, send, welcome{To: "a@example.com"})
		if result.State != pawltype.StateSucceeded {
			t.Errorf("state = %s, want succeeded: %v", result.State, result.Err)
		}
	}
	_ = TestSend
}
