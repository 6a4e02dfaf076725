package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/client/encrypt"
	"github.com/pawlq/pawl/internal/client/outcome"
	"github.com/pawlq/pawl/internal/client/rpc"
	"github.com/pawlq/pawl/internal/client/telemetry"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
)

var claim = Claim{TaskID: "1", Type: "a", Token: "token"}

// The ending that the broker gets for each result of a handler.
func TestEndings(t *testing.T) {
	boom := errors.New("boom")
	directive := func(o pawltype.Outcome, delay time.Duration) error {
		return &outcome.Directive{Outcome: o, Delay: delay, Err: boom}
	}
	for _, x := range []struct {
		err  error
		want string
		op   telemetry.Verb
	}{
		{nil, "ack result text/plain", telemetry.VerbAck},
		{boom, "fail RETRY in 0s: boom", telemetry.VerbFail},
		{directive(pawltype.OutcomeFailed, time.Minute), "fail RETRY in 1m0s: boom", telemetry.VerbFail},
		{directive(pawltype.OutcomeDead, time.Minute), "fail DEAD in 0s: boom", telemetry.VerbFail},
		{directive(pawltype.OutcomeDiscarded, time.Minute), "fail DISCARD in 0s: boom", telemetry.VerbFail},
		{directive(pawltype.OutcomePoisoned, time.Minute), "fail POISON in 0s: boom", telemetry.VerbFail},
		{directive(pawltype.OutcomeSnoozed, time.Minute), "release for 1m0s", telemetry.VerbRelease},
	} {
		e := EndingOf(claim, []byte("result"), "text/plain", x.err)
		if got := e.Verb() + " " + text(e); got != x.want || e.Operation() != x.op {
			t.Errorf("%v: got %s, operation %d, want %s, %d", x.err, got, e.Operation(), x.want, x.op)
		}
	}
	refused := &pawltype.Error{Code: pawltype.ErrPayloadTooLarge}
	for _, x := range []struct {
		of   Ending
		want string
	}{
		{EndingOf(claim, nil, "", nil), "DEAD in 0s: pawl: payload_too_large"},
		{Fail(claim, boom), "RETRY in 0s: pawl: payload_too_large"},
		{Release(claim, time.Hour), "RETRY in 0s: pawl: payload_too_large"},
	} {
		if got := text(x.of.Fallback(claim, refused)); got != x.want {
			t.Errorf("%s refused: got %s, want %s", x.of.Verb(), got, x.want)
		}
	}
	if a := AckRequest(claim, nil, strings.Repeat("c", 257)); len(a.ContentType) != 256 {
		t.Errorf("the content type is sent with %d bytes, want 256", len(a.ContentType))
	}
	if MaxSettleItems != contract.MaxSettle {
		t.Errorf("up to %d endings are sent at once, but the broker accepts %d", MaxSettleItems, contract.MaxSettle)
	}
	if a, b := EndingOf(claim, make([]byte, 1000), "", nil), Release(claim, 0); a.Size() != 1256 || b.Size() != 256 ||
		Fail(claim, errors.New(strings.Repeat("x", 1000))).Size() < 1000 {
		t.Errorf("Size = %d with a result and %d without", a.Size(), b.Size())
	}
}

// text returns the content of an ending, and checks its claim.
func text(e Ending) string {
	var r pawlv1.SettleRequest
	e.AddTo(&r)
	switch {
	case len(r.Acks) == 1 && r.Acks[0].TaskId == "1" && r.Acks[0].ClaimToken == "token":
		return fmt.Sprintf("%s %s", r.Acks[0].Result, r.Acks[0].ContentType)
	case len(r.Fails) == 1 && r.Fails[0].TaskId == "1" && r.Fails[0].ClaimToken == "token":
		return fmt.Sprintf("%s in %s: %s", strings.TrimPrefix(r.Fails[0].Outcome.String(), "FAIL_OUTCOME_"),
			r.Fails[0].RetryIn.AsDuration(), r.Fails[0].Error.Message)
	case len(r.Releases) == 1 && r.Releases[0].TaskId == "1" && r.Releases[0].ClaimToken == "token":
		return fmt.Sprint("for ", r.Releases[0].Delay.AsDuration())
	}
	return r.String()
}

// server answers calls of any kind.
type server struct {
	rpc.Conn
	answer proto.Message
	fails  error
	tries  int
}

// Invoke implements rpc.Conn.
func (s *server) Invoke(_ context.Context, _ string, _, resp any, _ ...grpc.CallOption) error {
	if s.tries++; s.fails != nil {
		return s.fails
	}
	proto.Merge(resp.(proto.Message), s.answer)
	return nil
}

func calls(t *testing.T, s *server) Calls {
	tel, err := telemetry.New(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return NewCalls(rpc.NewCaller(s, -1), tel)
}

// Endings of all kinds share one request, and each gets its own answer. If answers are missing, the client does not guess whose they are.
func TestSettleAnswers(t *testing.T) {
	of := func(id string) Claim { return Claim{TaskID: id, Token: id} }
	endings := []Ending{Fail(of("1"), errors.New("x")), EndingOf(of("2"), nil, "", nil), Release(of("3"), 0),
		EndingOf(of("4"), nil, "", nil), Release(of("5"), 0), Fail(of("6"), errors.New("x"))}
	said := func(ids ...string) (all []*pawlv1.Settled) {
		for _, id := range ids {
			all = append(all, &pawlv1.Settled{TaskId: id})
		}
		return all
	}
	s := &server{answer: &pawlv1.SettleResponse{Acks: said("2", "4"), Fails: said("1", "6"), Releases: said("3", "5")}}
	spans := tracetest.NewSpanRecorder()
	tel, err := telemetry.New(telemetry.Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	if err != nil {
		t.Fatal(err)
	}
	got, err := NewCalls(rpc.NewCaller(s, -1), tel).Settle(t.Context(), endings)
	if ended := spans.Ended(); len(ended) != 1 || ended[0].Name() != "settle" {
		t.Errorf("the call has the spans %v, want one named settle", ended)
	}
	for i := range endings {
		if err != nil || len(got) != len(endings) || got[i].GetTaskId() != fmt.Sprint(i+1) {
			t.Fatalf("Settle = %v, %v, want one answer for each ending in order", got, err)
		}
	}
	for _, r := range []*pawlv1.SettleResponse{
		{Acks: said("2"), Fails: said("1", "6"), Releases: said("3", "5")},
		{Acks: said("2", "4"), Fails: said("1"), Releases: said("3", "5")},
		{Acks: said("2", "4"), Fails: said("1", "6"), Releases: said("3")},
		{},
	} {
		got, err := calls(t, &server{answer: r}).Settle(t.Context(), endings)
		said := fmt.Sprintf("6 settles got %d answers", len(r.Acks)+len(r.Fails)+len(r.Releases))
		if got != nil || !errors.Is(err, pawltype.ErrInternal) || !strings.Contains(err.Error(), said) {
			t.Errorf("with %d, %d and %d answers: %v, %v, want an internal error", len(r.Acks), len(r.Fails), len(r.Releases), got, err)
		}
	}
	refused := &pawltype.Error{Code: pawltype.ErrPermissionDenied}
	if got, err := calls(t, &server{fails: refused}).Settle(t.Context(), endings); got != nil || !errors.Is(err, refused) {
		t.Errorf("Settle = %v, %v, want the broker's refusal", got, err)
	}
}

// A call about a claim returns what the broker answers, or an error that names the call.
func TestRefusedCallsAreNamed(t *testing.T) {
	refused := &pawltype.Error{Code: pawltype.ErrStaleClaim}
	for what, call := range map[string]func(c Calls) (any, error){
		`extend "1": `: func(c Calls) (any, error) { return c.Extend(t.Context(), claim, 0, nil, nil) },
		"begin: ":      func(c Calls) (any, error) { return c.BeginOnce(t.Context(), claim, "k") },
		"finish: ":     func(c Calls) (any, error) { return c.FinishOnce(t.Context(), claim, "k", nil, 0) },
		"abandon: ":    func(c Calls) (any, error) { return c.AbandonOnce(t.Context(), claim, "k") },
	} {
		if _, err := call(calls(t, &server{fails: refused})); !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("%s: got %v, want the broker's refusal with this prefix", what, err)
		}
		var answer proto.Message
		switch what {
		case "begin: ":
			answer = &pawlv1.BeginOnceResponse{}
		case "finish: ":
			answer = &pawlv1.FinishOnceResponse{}
		case "abandon: ":
			answer = &pawlv1.AbandonOnceResponse{}
		default:
			answer = &pawlv1.ExtendResponse{}
		}
		if _, err := call(calls(t, &server{answer: answer})); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A checkpoint that would be taken for an encrypted one is not sent, except by a client that encrypts it.
func TestCheckpointsThatLookEncrypted(t *testing.T) {
	keys, err := keyring.New(keyring.Config{Keys: []keyring.Key{{ID: "k1", Secret: make([]byte, 32)}}})
	if err != nil {
		t.Fatal(err)
	}
	for checkpoint, refused := range map[string]bool{`{"pawl_encrypted":"mine"}`: true, `{"pawl_encrypted":1}`: false, "": false} {
		s := &server{answer: &pawlv1.ExtendResponse{}}
		_, err := calls(t, s).Extend(t.Context(), claim, 0, nil, []byte(checkpoint))
		if e, bad := errors.AsType[*pawltype.Error](err); bad != refused || refused && (e.Field != "checkpoint" || s.tries != 0) {
			t.Errorf("%q: %v after %d tries, want a refusal: %v", checkpoint, err, s.tries, refused)
		}
		c := calls(t, s)
		c = NewCalls(rpc.NewCaller(encrypt.Over(c.caller.Conn, keys, "team"), -1), c.observe)
		if _, err := c.Extend(t.Context(), claim, 0, nil, []byte(checkpoint)); err != nil {
			t.Errorf("%q, encrypted: %v", checkpoint, err)
		}
	}
}

// Calls that are safe to repeat are retried; AbandonOnce is not.
func TestRepeatedCalls(t *testing.T) {
	away, ctx := &pawltype.Error{Code: pawltype.ErrUnavailable}, context.Background()
	tel, err := telemetry.New(telemetry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func(c Calls) error{
		"extend":  func(c Calls) error { _, err := c.Extend(ctx, claim, 0, nil, nil); return err },
		"begin":   func(c Calls) error { _, err := c.BeginOnce(ctx, claim, "k"); return err },
		"finish":  func(c Calls) error { _, err := c.FinishOnce(ctx, claim, "k", nil, 0); return err },
		"settle":  func(c Calls) error { _, err := c.Settle(ctx, []Ending{Release(claim, 0)}); return err },
		"abandon": func(c Calls) error { _, err := c.AbandonOnce(ctx, claim, "k"); return err },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{fails: away}
			if err := call(NewCalls(rpc.NewCaller(s, time.Second), tel)); !errors.Is(err, away) || (s.tries > 1) != (what != "abandon") {
				t.Errorf("%s: %d tries, %v", what, s.tries, err)
			}
		})
	}
}

// away is a broker that has no leader for the shard of some tasks, until it is called often enough.
type away struct {
	rpc.Conn
	tasks map[string]int // how many calls find the task's shard without a leader
	asked []string       // the tasks of each call
}

// Invoke implements rpc.Conn.
func (s *away) Invoke(_ context.Context, _ string, req, resp any, _ ...grpc.CallOption) error {
	r, out := req.(*pawlv1.SettleRequest), resp.(*pawlv1.SettleResponse)
	var asked []string
	answer := func(id string) *pawlv1.Settled {
		asked = append(asked, id)
		if s.tasks[id]--; s.tasks[id] >= 0 {
			return &pawlv1.Settled{TaskId: id, Error: &pawlv1.Error{Code: string(pawltype.ErrUnavailable)}}
		}
		return &pawlv1.Settled{TaskId: id}
	}
	for _, a := range r.Acks {
		out.Acks = append(out.Acks, answer(a.TaskId))
	}
	for _, f := range r.Fails {
		out.Fails = append(out.Fails, answer(f.TaskId))
	}
	s.asked = append(s.asked, strings.Join(asked, " "))
	return nil
}

// Endings whose shard is away are sent again, and only they, until the time is up or the caller's context ends.
func TestSettleRepeatsWhatIsUnavailable(t *testing.T) {
	of := func(id string) Claim { return Claim{TaskID: id, Token: id} }
	endings := []Ending{EndingOf(of("1"), nil, "", nil), Fail(of("2"), errors.New("x")), EndingOf(of("3"), nil, "", nil)}
	const ever = 1 << 30
	for _, x := range []struct {
		name   string
		tasks  map[string]int
		within time.Duration
		asked  string
		lost   string
	}{
		{"none", map[string]int{}, time.Minute, "1 3 2", ""},
		{"once", map[string]int{"3": 1}, time.Minute, "1 3 2|3", ""},
		{"two", map[string]int{"2": 2, "3": 1}, time.Minute, "1 3 2|3 2|2", ""},
		{"for long", map[string]int{"2": ever}, time.Minute, "", "2"},
		{"longer than the caller waits", map[string]int{"1": ever, "3": ever}, time.Second, "", "13"},
	} {
		synctest.Test(t, func(t *testing.T) {
			tel, err := telemetry.New(telemetry.Config{})
			if err != nil {
				t.Fatal(err)
			}
			const patience = 10 * time.Second
			s, began := &away{tasks: x.tasks}, time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), x.within)
			defer cancel()
			got, err := NewCalls(rpc.NewCaller(s, patience), tel).Settle(ctx, endings)
			if err != nil || len(got) != len(endings) {
				t.Fatalf("%s: Settle = %v, %v", x.name, got, err)
			}
			lost := ""
			for i, p := range got {
				if p.GetTaskId() != fmt.Sprint(i+1) {
					t.Errorf("%s: answer %d is that of task %s", x.name, i, p.GetTaskId())
				}
				if p.GetError() != nil {
					lost += p.GetTaskId()
				}
			}
			if asked := strings.Join(s.asked, "|"); lost != x.lost || x.lost == "" && asked != x.asked {
				t.Errorf("%s: the broker was asked %q and %q are lost, want %q and %q", x.name, asked, lost, x.asked, x.lost)
			}
			if took := time.Since(began); took > patience+3*time.Second || took > x.within {
				t.Errorf("%s: it took %s", x.name, took)
			}
		})
	}
}
