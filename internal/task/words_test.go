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

// The names of the API are parsed as they are written, and no others are.
func TestEnumNames(t *testing.T) {
	for word, good := range map[string]bool{"": true, "queue.pause": true, "queue.*": true, "queue.": false,
		"queue*": false, "queue": false, "que.*": false, "none": false, ".*": false} {
		if err := CheckActions(word); (err == nil) != good {
			t.Errorf("CheckActions(%q) = %v", word, err)
		}
	}
	for word, good := range map[string]bool{"": true, "queue": true, "queues": false} {
		if err := CheckTargetKind(word); (err == nil) != good {
			t.Errorf("CheckTargetKind(%q) = %v", word, err)
		}
	}
	for _, p := range Priorities {
		if again, ok := ParsePriority(p.String()); !ok || again != p {
			t.Errorf("%s is parsed as %s", p, again)
		}
	}
	if _, ok := ParsePriority("unknown"); ok || Priority(0).String() != "unknown" {
		t.Error("an unknown priority was parsed")
	}
	if _, ok := ParseState("unknown"); ok || State(len(stateWords)).String() != "unknown" ||
		State(len(stateWords)+1).String() != "unknown" || State(0).String() != "" {
		t.Error("an unknown state was parsed")
	}
	if _, ok := ParseOnConflict("unknown"); ok || OnConflict(len(onConflictWords)).String() != "unknown" ||
		OnConflict(len(onConflictWords)+1).String() != "unknown" {
		t.Error("an unknown on_conflict was parsed")
	}
	if Outcome(len(outcomeWords)).String() != "unknown" || Outcome(len(outcomeWords)+1).String() != "unknown" ||
		OutcomeLeaderless.String() != "leaderless" || OutcomeSucceeded.String() != "succeeded" {
		t.Error("an outcome has the wrong name")
	}
	want := `action: "` + strings.Repeat("x", 64) + `…" is not one of replay, cancel`
	if got := NoneOf("action", strings.Repeat("x", 100), BulkActions[:2]).Message; got != want {
		t.Errorf("NoneOf returned %q, want %q", got, want)
	}
}

// docs/lifecycle.md specifies the status that callers see for each state.
func TestStatus(t *testing.T) {
	for s, want := range map[State]string{Scheduled: "queued", Ready: "queued", Retrying: "queued", Claimed: "processing",
		Succeeded: "completed", Dead: "failed", Discarded: "failed", Poisoned: "failed", Cancelled: "cancelled", 0: "unknown"} {
		if got := s.Status(); got != want {
			t.Errorf("%s has status %q, want %q", s, got, want)
		}
		if waits := want == "queued"; s.Waiting() != waits {
			t.Errorf("%s counts as waiting: %v", s, s.Waiting())
		}
		if ended := s != 0 && want != "queued" && want != "processing"; s.Ended() != ended {
			t.Errorf("%s counts as ended: %v", s, s.Ended())
		}
	}
}

// An id has the format of RFC 9562, and no other is parsed.
func TestFormOfID(t *testing.T) {
	const text = "0123456789ab7cde8000000000000001"
	id := NewID(0xcde, 0x0123456789ab, 1)
	want := text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
	if id.String() != want {
		t.Errorf("the id is %s, want %s", id, want)
	}
	if again, err := ParseID(want); err != nil || again != id {
		t.Errorf("%s is parsed as %s, %v", want, again, err)
	}
	for _, at := range []int{8, 13, 18, 23} {
		if _, err := ParseID(want[:at] + "0" + want[at+1:]); err == nil {
			t.Errorf("an id without the dash at %d was parsed", at)
		}
	}
	for at := range want {
		if want[at] != '-' {
			if _, err := ParseID(want[:at] + "g" + want[at+1:]); err == nil {
				t.Errorf("an id with a g at %d was parsed", at)
			}
		}
	}
	if id := NewID(1, 1, 0x0102030405060708); [8]byte(id[8:]) != [8]byte{0x81, 2, 3, 4, 5, 6, 7, 8} {
		t.Errorf("random bits 1 to 8 are encoded as %x", id[8:])
	}
	if id[6] = 0x60; id.IsV7() {
		t.Error("version 6 counts as version 7")
	}
	if id = NewID(1, 1, math.MaxUint64); !id.IsV7() || id[8] != 0xbf {
		t.Errorf("an id with all random bits set is %s", id)
	}
	if id[8] = 0xff; id.IsV7() {
		t.Error("another variant counts as that of the RFC")
	}
	for n, want := range map[int]int{64: 64, 65: 64 + len("…")} {
		if got := clip(strings.Repeat("x", n)); len(got) != want {
			t.Errorf("%d bytes are clipped to %d", n, len(got))
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
			t.Errorf("action %s on %v selects %v, want %v", c.action, c.asked, got, c.want)
		}
	}
}

func TestNoticeKinds(t *testing.T) {
	kinds, err := ParseNotificationKinds("kinds", []string{"queue.*", "task.poisoned", "queue.over"})
	if err != nil || !slices.Equal(kinds, []NotificationKind{NotifyPoisoned, NotifyQueueOver, NotifyQueueUnder}) {
		t.Errorf("ParseNotificationKinds = %v, %v", kinds, err)
	}
	for _, bad := range [][]string{{""}, {"*"}, {"task"}, {"task."}, {"task*"}, {"none.*"}, {"webhook.test"}, {"task.*", "none"},
		slices.Repeat([]string{"task.dead"}, len(NotificationKinds)+1)} {
		if kinds, err := ParseNotificationKinds("kinds", bad); err == nil {
			t.Errorf("ParseNotificationKinds(%q) = %v, want an error", bad, kinds)
		}
	}
	if _, err := ParseNotificationKinds("kinds", slices.Repeat([]string{"task.dead"}, len(NotificationKinds))); err != nil {
		t.Error(err)
	}
	if NotifyDead.OfThreshold() || !NotifyQueueOver.OfThreshold() || !NotifyQueueUnder.OfThreshold() {
		t.Error("OfThreshold is wrong for a kind")
	}
	if got := LastSamples([]NotificationSample{{Task: "1"}, {Task: "2"}}); len(got) != 2 {
		t.Errorf("LastSamples of 2 = %v", got)
	}
	for text, want := range map[string]string{"": "", "\n \n a \nb": "a", strings.Repeat("x", 300): strings.Repeat("x", 256)} {
		if got := FirstLine(text); got != want {
			t.Errorf("FirstLine(%q) = %q", text, got)
		}
	}
	w := Watch{Rules: []WatchRule{{[]NotificationKind{NotifyDead}, []string{"mail*"}}, {[]NotificationKind{NotifyPoisoned}, []string{"*"}}}}
	if !w.Wants(NotifyDead, "mail.a") || w.Wants(NotifyDead, "sms") || !w.Wants(NotifyPoisoned, "sms") ||
		w.Wants(NotifyBreakerOpened, "mail") {
		t.Error("Wants does not match the webhook's rules")
	}
}

// Notifications of one kind are merged: the newer one determines the status, and the last samples are kept.
func TestNoticesAreMerged(t *testing.T) {
	at := time.Unix(100, 0)
	old := func() Notification {
		return Notification{Count: 2, First: at, Last: at.Add(5), Fingerprint: "old", Level: &NotificationLevel{Depth: 1},
			Samples: []NotificationSample{{Task: "1"}, {Task: "2"}}}
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
		n.Merge(&Notification{Count: 3, First: at.Add(c.first), Last: at.Add(c.last), Fingerprint: c.fingerprint, Level: level,
			Samples: slices.Repeat([]NotificationSample{{Task: "3"}}, 4)})
		if n.Count != 5 || !n.First.Equal(at.Add(min(c.first, 0))) || !n.Last.Equal(at.Add(max(c.last, 5))) || n.Fingerprint != c.want ||
			(n.Level == level) != c.newer {
			t.Errorf("%s: merged to %+v", what, n)
		}
		if len(n.Samples) != 5 || n.Samples[0].Task != "2" || before[0].Task != "1" {
			t.Errorf("%s: the samples are %v", what, n.Samples)
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
			t.Errorf("%s: active is %v, takes the type: %v", what, c.g.Active(), c.g.Takes("t"))
		}
	}
	g := WorkerGroup{Connected: 1, Slots: 2, Busy: 3, Callers: 4, Quiet: 5, Draining: 6}
	for _, o := range []struct{ id, want string }{{"", ""}, {"b", "b"}, {"c", "b"}, {"a", "a"}, {"", "a"}} {
		g.Add(&WorkerGroup{Connected: 1, Slots: 1, Busy: 1, Callers: 1, Quiet: 1, Draining: 1, QuietID: o.id, Named: o.id})
		if g.QuietID != o.want || g.Named != o.want {
			t.Errorf("with id %q the quiet worker is %q, named %q", o.id, g.QuietID, g.Named)
		}
	}
	if g.Connected != 6 || g.Slots != 7 || g.Busy != 8 || g.Callers != 9 || g.Quiet != 10 || g.Draining != 11 {
		t.Errorf("five more of each add up to %+v", g)
	}
}

// A pause, a breaker, a limit or a task that has to end first holds a task, whoever asks for it; nothing else does.
func TestWhyHolds(t *testing.T) {
	for i, w := range Whys {
		held := w == WhyUnique || w == WhyKeyOrder || strings.HasSuffix(string(w), "_paused") || w == WhyBreakerOpen ||
			strings.HasSuffix(string(w), "_max_running") || strings.HasSuffix(string(w), "_rate")
		if w.Holds() != held || w.Order() != i {
			t.Errorf("%s holds: %v, its order is %d", w, w.Holds(), w.Order())
		}
	}
}

func TestActorsAreChecked(t *testing.T) {
	for name, good := range map[string]bool{"": true, "A. B ~": true, strings.Repeat("x", 256): true, strings.Repeat("x", 257): false,
		"\x1f": false, "\x7f": false, "é": false} {
		if err := CheckActor(name); (err == nil) != good {
			t.Errorf("CheckActor(%q) = %v", name, err)
		}
	}
	if !(Author{}).IsZero() || (Author{Reason: "r"}).IsZero() {
		t.Error("IsZero is wrong for an empty author or for one with a reason")
	}
}

func TestScopeInContext(t *testing.T) {
	mail := Scope{Queues: []string{"mail"}}
	ctx := WithScope(t.Context(), mail)
	if !ScopeOf(ctx).Equal(mail) || !ScopeOf(WithoutScope(ctx)).All() || !ScopeOf(t.Context()).All() || WithScope(ctx, Scope{}) != ctx {
		t.Error("the context has another scope than it was given")
	}
	for _, c := range []struct {
		a, b []string
		same bool
	}{{nil, nil, true}, {nil, []string{}, false}, {[]string{}, nil, false}, {[]string{"a"}, []string{"a"}, true},
		{[]string{"a"}, []string{"b"}, false}} {
		if got := (Scope{c.a}).Equal(Scope{c.b}); got != c.same {
			t.Errorf("Equal of %q and %q is %v", c.a, c.b, got)
		}
	}
	if !(Scope{}).All() || mail.All() {
		t.Error("All is wrong for the zero scope or for one with a pattern")
	}
	long := Scope{Queues: slices.Repeat([]string{strings.Repeat("*", MaxStars)}, MaxPatterns)}
	refuses(t, "as many patterns with as many stars as may be", long.Check("queues", DefaultLimits()), "")
	refuses(t, "no scope", (Scope{}).Check("queues", DefaultLimits()), "")
}

func TestTokenIsRead(t *testing.T) {
	token := Token{Epoch: 5, Fence: 300, Nonce: 3}
	text := token.String()
	if text != "AQWsAgAAAAAAAAAD" { // workers hold tokens while a node is upgraded
		t.Errorf("the token is written as %s", text)
	}
	if again, err := ParseToken(text); err != nil || again != token {
		t.Errorf("%s is parsed as %+v, %v", text, again, err)
	}
	raw := func(b ...byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	many := slices.Repeat([]byte{0xff}, 11)
	if _, err := ParseToken(""); err == nil || !strings.Contains(err.Error(), "is required") {
		t.Errorf("ParseToken of an empty string: %v", err)
	}
	for _, bad := range []string{"\n", raw(tokenVersion), raw(tokenVersion+1, 5, 2, 0, 0, 0, 0, 0, 0, 0, 3),
		raw(append([]byte{tokenVersion}, many...)...), raw(append([]byte{tokenVersion}, many[:8]...)...),
		raw(append([]byte{tokenVersion, 5}, many[:8]...)...), raw(append([]byte{tokenVersion, 5}, many...)...), "x", text[1:],
		text[:len(text)-1], text + "A", text + ".", strings.ToUpper(text) + "!"} {
		if again, err := ParseToken(bad); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("ParseToken(%q) = %+v, %v, want ErrInvalidArgument", bad, again, err)
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
			t.Errorf("%s: errors.Is is %v", what, !c.is)
		}
	}
}
