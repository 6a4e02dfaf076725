package task

import (
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// The words of the contract are parsed as they are written, and no others are.
func TestWords(t *testing.T) {
	for word, good := range map[string]bool{"": true, "queue.pause": true, "queue.*": true, "queue.": false, "queue*": false, "queue": false, "que.*": false, "none": false, ".*": false} {
		if err := CheckActions(word); (err == nil) != good {
			t.Errorf("action %q: %v", word, err)
		}
	}
	for word, good := range map[string]bool{"": true, "queue": true, "queues": false} {
		if err := CheckTargetKind(word); (err == nil) != good {
			t.Errorf("target %q: %v", word, err)
		}
	}
	for _, p := range Priorities {
		if again, ok := ParsePriority(p.String()); !ok || again != p {
			t.Errorf("%s is read as %s", p, again)
		}
	}
	if _, ok := ParsePriority("unknown"); ok || Priority(0).String() != "unknown" {
		t.Error("an unknown priority is read")
	}
	if _, ok := ParseState("unknown"); ok || State(len(stateNames)).String() != "unknown" || State(len(stateNames)+1).String() != "unknown" || State(0).String() != "" {
		t.Error("an unknown state is read")
	}
	if _, ok := ParseOnConflict("unknown"); ok || OnConflict(len(onConflictNames)).String() != "unknown" || OnConflict(len(onConflictNames)+1).String() != "unknown" {
		t.Error("an unknown conflict is read")
	}
	if Outcome(len(outcomeNames)).String() != "unknown" || Outcome(len(outcomeNames)+1).String() != "unknown" || OutcomeLeaderless.String() != "leaderless" || OutcomeSucceeded.String() != "succeeded" {
		t.Error("outcomes have other names")
	}
	if got := NoneOf("action", strings.Repeat("x", 100), BulkActions[:2]).Message; got != `action: "`+strings.Repeat("x", 64)+`…" is not one of replay, cancel` {
		t.Errorf("a word that is not one of some is refused by %q", got)
	}
}

// docs/lifecycle.md says what callers see of each state.
func TestStatus(t *testing.T) {
	for s, want := range map[State]string{Scheduled: "queued", Ready: "queued", Retrying: "queued", Claimed: "processing", Succeeded: "completed",
		Dead: "failed", Discarded: "failed", Poisoned: "failed", Cancelled: "cancelled", 0: "unknown"} {
		if got := s.Status(); got != want {
			t.Errorf("%s is shown as %q, want %q", s, got, want)
		}
		if waits := want == "queued"; s.Waiting() != waits {
			t.Errorf("%s waits: %v", s, s.Waiting())
		}
		if ended := s != 0 && want != "queued" && want != "processing"; s.Ended() != ended {
			t.Errorf("%s has ended: %v", s, s.Ended())
		}
	}
}

// An id has the format of RFC 9562, and no other is parsed.
func TestFormOfID(t *testing.T) {
	const text = "0123456789ab7cde8000000000000001"
	id := NewID(0xcde, 0x0123456789ab, 1)
	want := text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
	if id.String() != want {
		t.Errorf("it is %s, want %s", id, want)
	}
	if again, err := ParseID(want); err != nil || again != id {
		t.Errorf("%s is read as %s, %v", want, again, err)
	}
	for _, at := range []int{8, 13, 18, 23} {
		if _, err := ParseID(want[:at] + "0" + want[at+1:]); err == nil {
			t.Errorf("it is read without the dash at %d", at)
		}
	}
	for at := range want {
		if want[at] != '-' {
			if _, err := ParseID(want[:at] + "g" + want[at+1:]); err == nil {
				t.Errorf("it is read with a g at %d", at)
			}
		}
	}
	if id := NewID(1, 1, 0x0102030405060708); [8]byte(id[8:]) != [8]byte{0x81, 2, 3, 4, 5, 6, 7, 8} {
		t.Errorf("random bits 1 to 8 became %x", id[8:])
	}
	if id[6] = 0x60; id.IsV7() {
		t.Error("version 6 is taken for 7")
	}
	if id = NewID(1, 1, math.MaxUint64); !id.IsV7() || id[8] != 0xbf {
		t.Errorf("all random bits set: %s", id)
	}
	if id[8] = 0xff; id.IsV7() {
		t.Error("another variant is taken for that of the RFC")
	}
	for n, want := range map[int]int{64: 64, 65: 64 + len("…")} {
		if got := clip(strings.Repeat("x", n)); len(got) != want {
			t.Errorf("%d bytes are shown as %d", n, len(got))
		}
	}
}

// An operation selects the states that its filter asks for, if its action applies to them.
func TestOperationSelects(t *testing.T) {
	for _, c := range []struct {
		action BulkAction
		asked  []State
		want   []State
		field  string
	}{
		{Replay, nil, []State{Dead}, ""},
		{Replay, []State{Retrying, Dead}, []State{Retrying, Dead}, ""},
		{Cancel, nil, []State{Scheduled, Ready, Claimed, Retrying}, ""},
		{Discard, []State{Ready, Claimed}, nil, "filter.state"},
		{RunNow, []State{Ready}, nil, "filter.state"},
		{"none", nil, nil, "action"},
	} {
		got, err := c.action.Selects(c.asked)
		refuses(t, string(c.action), err, c.field)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s of %v selects %v, want %v", c.action, c.asked, got, c.want)
		}
	}
}

func TestNewsKinds(t *testing.T) {
	kinds, err := ParseNotificationKinds("kinds", []string{"queue.*", "task.poisoned", "queue.over"})
	if err != nil || !slices.Equal(kinds, []NotificationKind{NotifyPoisoned, NotifyQueueOver, NotifyQueueUnder}) {
		t.Errorf("read %v, %v", kinds, err)
	}
	for _, bad := range [][]string{{""}, {"*"}, {"task"}, {"task."}, {"task*"}, {"none.*"}, {"webhook.test"}, {"task.*", "none"}, slices.Repeat([]string{"task.dead"}, len(NotificationKinds)+1)} {
		if kinds, err := ParseNotificationKinds("kinds", bad); err == nil {
			t.Errorf("%q is read as %v", bad, kinds)
		}
	}
	if _, err := ParseNotificationKinds("kinds", slices.Repeat([]string{"task.dead"}, len(NotificationKinds))); err != nil {
		t.Error(err)
	}
	if NotifyDead.OfThreshold() || !NotifyQueueOver.OfThreshold() || !NotifyQueueUnder.OfThreshold() {
		t.Error("other kinds are about thresholds")
	}
	if got := LastSamples([]NotificationSample{{Task: "1"}, {Task: "2"}}); len(got) != 2 {
		t.Errorf("the last of 2 samples are %v", got)
	}
	for text, want := range map[string]string{"": "", "\n \n a \nb": "a", strings.Repeat("x", 300): strings.Repeat("x", 256)} {
		if got := FirstLine(text); got != want {
			t.Errorf("the first line of %q is %q", text, got)
		}
	}
	w := Watch{Rules: []WatchRule{{[]NotificationKind{NotifyDead}, []string{"mail*"}}, {[]NotificationKind{NotifyPoisoned}, []string{"*"}}}}
	if !w.Wants(NotifyDead, "mail.a") || w.Wants(NotifyDead, "sms") || !w.Wants(NotifyPoisoned, "sms") || w.Wants(NotifyBreakerOpened, "mail") {
		t.Error("webhooks want other news than they chose")
	}
}

// Notifications of one kind are merged: the newer one determines the status, and the last samples are kept.
func TestNewsAreMerged(t *testing.T) {
	at := time.Unix(100, 0)
	old := func() Notification {
		return Notification{Count: 2, First: at, Last: at.Add(5), Fingerprint: "old", Level: &NotificationLevel{Depth: 1}, Samples: []NotificationSample{{Task: "1"}, {Task: "2"}}}
	}
	level := &NotificationLevel{Depth: 2}
	for what, c := range map[string]struct {
		first, last time.Duration
		fingerprint string
		want        string
		newer       bool
	}{
		"newer":              {6, 9, "new", "new", true},
		"newer, of no group": {6, 9, "", "old", true},
		"of one moment":      {0, 5, "new", "new", true},
		"older":              {-9, 4, "new", "old", false},
	} {
		n := old()
		before := n.Samples
		n.Merge(&Notification{Count: 3, First: at.Add(c.first), Last: at.Add(c.last), Fingerprint: c.fingerprint, Level: level, Samples: slices.Repeat([]NotificationSample{{Task: "3"}}, 4)})
		if n.Count != 5 || !n.First.Equal(at.Add(min(c.first, 0))) || !n.Last.Equal(at.Add(max(c.last, 5))) || n.Fingerprint != c.want || (n.Level == level) != c.newer {
			t.Errorf("%s: %+v", what, n)
		}
		if len(n.Samples) != 5 || n.Samples[0].Task != "2" || before[0].Task != "1" {
			t.Errorf("%s: samples %v", what, n.Samples)
		}
	}
}

func TestWorkerGroups(t *testing.T) {
	for what, c := range map[string]struct {
		g             WorkerGroup
		active, takes bool
	}{
		"nobody":         {WorkerGroup{}, false, true},
		"connected":      {WorkerGroup{Connected: 1}, true, true},
		"callers":        {WorkerGroup{Callers: 1}, true, true},
		"of the type":    {WorkerGroup{Types: []string{"a", "t"}}, false, true},
		"of other types": {WorkerGroup{Types: []string{"a", "z"}}, false, false},
		"untold":         {WorkerGroup{Untold: true}, false, false},
	} {
		if c.g.Active() != c.active || c.g.Takes("t") != c.takes {
			t.Errorf("%s: active %v, takes %v", what, c.g.Active(), c.g.Takes("t"))
		}
	}
	g := WorkerGroup{Connected: 1, Slots: 2, Busy: 3, Callers: 4, Quiet: 5, Draining: 6}
	for _, o := range []struct{ id, want string }{{"", ""}, {"b", "b"}, {"c", "b"}, {"a", "a"}, {"", "a"}} {
		g.Add(&WorkerGroup{Connected: 1, Slots: 1, Busy: 1, Callers: 1, Quiet: 1, Draining: 1, QuietID: o.id, Named: o.id})
		if g.QuietID != o.want || g.Named != o.want {
			t.Errorf("with %q the quiet one is %q, named %q", o.id, g.QuietID, g.Named)
		}
	}
	if g.Connected != 6 || g.Slots != 7 || g.Busy != 8 || g.Callers != 9 || g.Quiet != 10 || g.Draining != 11 {
		t.Errorf("five more of each make %+v", g)
	}
}

// A pause, a breaker, a limit or a task that has to end first holds a task, whoever asks for it; nothing else does.
func TestWhyHolds(t *testing.T) {
	for i, w := range Whys {
		held := w == WhyUnique || w == WhyKeyOrder || strings.HasSuffix(string(w), "_paused") || w == WhyBreakerOpen || strings.HasSuffix(string(w), "_max_running") || strings.HasSuffix(string(w), "_rate")
		if w.Holds() != held || w.Order() != i {
			t.Errorf("%s holds: %v, its place is %d", w, w.Holds(), w.Order())
		}
	}
}

func TestActorsAreChecked(t *testing.T) {
	for name, good := range map[string]bool{"": true, "A. B ~": true, strings.Repeat("x", 256): true, strings.Repeat("x", 257): false, "\x1f": false, "\x7f": false, "é": false} {
		if err := CheckActor(name); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
	if !(Author{}).IsZero() || (Author{Reason: "r"}).IsZero() {
		t.Error("who is nobody is not known")
	}
}

func TestScopeInContext(t *testing.T) {
	mail := Scope{Queues: []string{"mail"}}
	ctx := WithScope(t.Context(), mail)
	if !ScopeOf(ctx).Equal(mail) || !ScopeOf(WithoutScope(ctx)).All() || !ScopeOf(t.Context()).All() || WithScope(ctx, Scope{}) != ctx {
		t.Error("a call has another scope than it was given")
	}
	for _, c := range []struct {
		a, b []string
		same bool
	}{{nil, nil, true}, {nil, []string{}, false}, {[]string{}, nil, false}, {[]string{"a"}, []string{"a"}, true}, {[]string{"a"}, []string{"b"}, false}} {
		if got := (Scope{c.a}).Equal(Scope{c.b}); got != c.same {
			t.Errorf("%q and %q are the same: %v", c.a, c.b, got)
		}
	}
	if !(Scope{}).All() || mail.All() {
		t.Error("which scope is all queues is not known")
	}
	long := Scope{Queues: slices.Repeat([]string{strings.Repeat("*", MaxStars)}, MaxPatterns)}
	refuses(t, "as many patterns with as many stars as may be", long.Check("queues", DefaultLimits()), "")
	refuses(t, "no scope", (Scope{}).Check("queues", DefaultLimits()), "")
}

func TestTokenIsRead(t *testing.T) {
	token := Token{Epoch: 5, Fence: 300, Nonce: 3}
	text := token.String()
	if text != "AQWsAgAAAAAAAAAD" { // workers hold tokens while a node is upgraded
		t.Errorf("it is written as %s", text)
	}
	if again, err := ParseToken(text); err != nil || again != token {
		t.Errorf("%s is read as %+v, %v", text, again, err)
	}
	raw := func(b ...byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	many := slices.Repeat([]byte{0xff}, 11)
	if _, err := ParseToken(""); err == nil || !strings.Contains(err.Error(), "is required") {
		t.Errorf("no token: %v", err)
	}
	for _, bad := range []string{"\n", raw(tokenVersion), raw(tokenVersion+1, 5, 2, 0, 0, 0, 0, 0, 0, 0, 3), raw(append([]byte{tokenVersion}, many...)...),
		raw(append([]byte{tokenVersion}, many[:8]...)...), raw(append([]byte{tokenVersion, 5}, many[:8]...)...), raw(append([]byte{tokenVersion, 5}, many...)...), "x", text[1:], text[:len(text)-1], text + "A", text + ".", strings.ToUpper(text) + "!"} {
		if again, err := ParseToken(bad); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%q is read as %+v, %v", bad, again, err)
		}
	}
}

// Two refusals differ if their codes do, or their reasons, if the target has one.
func TestErrorsAreCompared(t *testing.T) {
	err := &Error{Code: CodeUnavailable, Reason: ReasonNotReady, Message: "m"}
	for what, c := range map[string]struct {
		other error
		is    bool
	}{
		"the code":         {ErrUnavailable, true},
		"code and reason":  {&Error{Code: CodeUnavailable, Reason: ReasonNotReady}, true},
		"another reason":   {&Error{Code: CodeUnavailable, Reason: "other"}, false},
		"another code":     {ErrNotFound, false},
		"no refusal":       {errors.New("m"), false},
		"reason, not code": {&Error{Code: CodeNotFound, Reason: ReasonNotReady}, false},
	} {
		if errors.Is(err, c.other) != c.is {
			t.Errorf("%s: it is: %v", what, !c.is)
		}
	}
}
