package outcome

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/encrypt"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
)

var errDriver = errors.New("driver: bad connection")

// The meaning of a handler's error, and its text.
func TestOutcomes(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("import: %w", err) }
	for _, x := range []struct {
		err  error
		want pawltype.Outcome
		text string
	}{
		{nil, pawltype.OutcomeSucceeded, ""},
		{errDriver, pawltype.OutcomeFailed, "driver: bad connection"},
		{wrap(&Directive{Outcome: pawltype.OutcomeDead, Err: errDriver}), pawltype.OutcomeDead, "import: driver: bad connection"},
		{&Directive{Outcome: pawltype.OutcomeSnoozed, Delay: time.Minute}, pawltype.OutcomeSnoozed, "snoozed"},
		{wrap(&UnknownType{Name: "mail"}), pawltype.OutcomeReleased, `import: pawl: no handler for type "mail"`},
		{wrap(&Interruption{pawltype.ErrDraining, errDriver}), pawltype.OutcomeReleased,
			"import: pawl: worker draining: driver: bad connection"},
	} {
		text := ""
		if x.err != nil {
			text = x.err.Error()
		}
		if got := Of(x.err); got != x.want || text != x.text {
			t.Errorf("%v: got %s, %q, want %s, %q", x.err, got, text, x.want, x.text)
		}
		if directive := DirectiveOf(x.err); (directive != nil) != (x.want == pawltype.OutcomeDead || x.want == pawltype.OutcomeSnoozed) {
			t.Errorf("DirectiveOf(%v) = %v", x.err, directive)
		}
	}
	if err := error(&Directive{Err: errDriver}); !errors.Is(err, errDriver) {
		t.Errorf("%v does not unwrap to the driver's error", err)
	}
}

// The error of a handler that was stopped has the reason once, whatever it returned. One that succeeded or steers is unchanged.
func TestInterrupted(t *testing.T) {
	stopped := func(cause error) context.Context {
		ctx, stop := context.WithCancelCause(t.Context())
		stop(cause)
		return ctx
	}
	lost := fmt.Errorf("%w: expired", pawltype.ErrLeaseLost)
	directive := &Directive{Outcome: pawltype.OutcomeDead, Err: errDriver}
	for what, x := range map[string]struct {
		ctx  context.Context
		err  error
		text string // "": err is unchanged
		want pawltype.Outcome
	}{
		"drains": {stopped(pawltype.ErrDraining), errDriver, "pawl: worker draining: driver: bad connection",
			pawltype.OutcomeReleased},
		"cancelled": {stopped(pawltype.ErrCancelled), errDriver, "pawl: task cancelled: driver: bad connection",
			pawltype.OutcomeCancelled},
		"lease lost":         {stopped(lost), errDriver, "pawl: lease lost: expired: driver: bad connection", pawltype.OutcomeLeaseLost},
		"returns the cause":  {stopped(lost), lost, "pawl: lease lost: expired", pawltype.OutcomeLeaseLost},
		"goes on":            {t.Context(), errDriver, "", pawltype.OutcomeFailed},
		"stopped by its own": {stopped(errDriver), errDriver, "", pawltype.OutcomeFailed},
		"succeeds":           {stopped(pawltype.ErrDraining), nil, "", pawltype.OutcomeSucceeded},
		"steers":             {stopped(pawltype.ErrDraining), directive, "", pawltype.OutcomeDead},
	} {
		got := Interrupted(x.ctx, x.err)
		if !errors.Is(got, x.err) || Of(got) != x.want || (got == x.err) != (x.text == "") {
			t.Errorf("%s: got %v, %s, want %s", what, got, Of(got), x.want)
		}
		if x.text != "" && (got.Error() != x.text || !errors.Is(got, context.Cause(x.ctx))) {
			t.Errorf("%s: got %q, want %q", what, got, x.text)
		}
	}
}

// Forged data is poisoned. If no key here opens it, it is a failure, since another worker may have the key.
func TestOpenClaimed(t *testing.T) {
	keys, err := keyring.New(keyring.Config{Keys: []keyring.Key{{ID: "k1", Secret: make([]byte, 32)}}})
	if err != nil {
		t.Fatal(err)
	}
	for what, x := range map[string]struct {
		conn        rpc.Conn
		contentType string
		want        pawltype.Outcome
	}{
		"plain":      {nil, "text/plain", pawltype.OutcomeSucceeded},
		"no keyring": {nil, "application/vnd.pawl.encrypted; key=k1", pawltype.OutcomeFailed},
		"forged":     {encrypt.Over(nil, keys, "team"), "application/vnd.pawl.encrypted; key=k1", pawltype.OutcomePoisoned},
	} {
		err := OpenClaimed(x.conn, &pawlv1.ClaimedTask{Payload: []byte("{}"), ContentType: x.contentType})
		if got := Of(err); got != x.want || keyring.IsForged(err) != (what == "forged") {
			t.Errorf("%s: got %v, %s, want %s", what, err, got, x.want)
		}
	}
}
