package task

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestIDHoldsShardAndTime(t *testing.T) {
	for _, shard := range []uint32{0, 1, 255, 256, MaxShard} {
		id := NewID(shard, 1_767_225_600_123, math.MaxUint64)
		if id.Shard() != shard || id.UnixMilli() != 1_767_225_600_123 || !id.IsV7() {
			t.Errorf("shard %d: %s has shard %d, time %d, v7 %t", shard, id, id.Shard(), id.UnixMilli(), id.IsV7())
		}
		again, err := ParseID(strings.ToUpper(id.String()))
		if err != nil || again != id {
			t.Errorf("%s was parsed as %s, %v", id, again, err)
		}
	}
	for _, bad := range []string{"", "x", "019b76df-0915-7001-9e29-5d82f964f29", "019b76df-0915-7001-9e29-5d82f964f296x",
		"019b76df_0915-7001-9e29-5d82f964f296", "g19b76df-0915-7001-9e29-5d82f964f296"} {
		if id, err := ParseID(bad); err == nil {
			t.Errorf("ParseID(%q) = %s, want an error", bad, id)
		}
	}
}

func FuzzToken(f *testing.F) {
	f.Add(Token{Epoch: 1, Fence: 2, Nonce: 3}.String())
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		token, err := ParseToken(s)
		if err != nil {
			if !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("ParseToken(%q): %v, want ErrInvalidArgument", s, err)
			}
			return
		}
		if again, err := ParseToken(token.String()); err != nil || again != token {
			t.Errorf("%+v was parsed again as %+v, %v", token, again, err)
		}
	})
}

// TestFencesGrow: in a new cluster fences count claims. A higher epoch begins above all fences of the one before, and counts again.
func TestFencesGrow(t *testing.T) {
	for _, c := range []struct{ last, epoch, next, claims uint64 }{
		{0, 0, 1, 1},
		{1, 0, 2, 2},
		{2, 1, 1<<20 + 1, 1},
		{1<<20 + 7, 1, 1<<20 + 8, 8},
		{1<<20 + 7, 0, 1<<20 + 8, 8}, // a leader that does not know of the epoch yet
		{1<<20 + 7, 2, 2<<20 + 1, 1},
		{5, 1767225600, 1767225600<<20 + 1, 1},
	} {
		if next := NextFence(c.last, c.epoch); next != c.next || ClaimsAt(next) != c.claims || next >= 1<<53 {
			t.Errorf("after fence %d in epoch %d comes %d, claim %d; want %d, claim %d", c.last, c.epoch, next, ClaimsAt(next), c.next,
				c.claims)
		}
	}
}

func TestTokenIsShort(t *testing.T) {
	if s := (Token{Epoch: math.MaxUint32, Fence: 1<<53 - 1, Nonce: math.MaxUint64}).String(); len(s) > 32 {
		t.Errorf("%q has %d characters", s, len(s))
	}
}

func TestRetryDelays(t *testing.T) {
	want := []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute,
		30 * time.Minute, 30 * time.Minute}
	for i, w := range want {
		if got := DefaultRetry.Delay(i+1, 0); got != w {
			t.Errorf("delay %d is %s, want %s", i+1, got, w)
		}
		if got := DefaultRetry.Delay(i+1, 1); got != w+w/4 {
			t.Errorf("delay %d with full jitter is %s, want %s", i+1, got, w+w/4)
		}
	}
	if got := DefaultRetry.Delay(1_000_000, 0); got != 30*time.Minute {
		t.Errorf("the millionth delay is %s, want 30m", got)
	}
	for _, bad := range []Retry{{Initial: -1}, {Initial: 2, Max: 1, Factor: 1}, {Factor: 0.5}, {Factor: math.NaN()}, {Factor: 1, Jitter: 2},
		{Factor: 1, Jitter: math.Inf(1)}} {
		if err := bad.Check("retry"); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("Check of %+v: %v", bad, err)
		}
	}
}

// TestTransitions compares the table with docs/lifecycle.md: nothing leaves success, only the end of a claim or a replay leads back to
// waiting, and every state is an end state or can reach one.
func TestTransitions(t *testing.T) {
	for _, from := range States {
		for _, to := range States {
			can := from.CanBecome(to)
			switch {
			case from == Succeeded && can,
				to == Succeeded && can && from != Claimed,
				to == Claimed && can && from != Ready && from != Claimed,
				(to == Dead || to == Poisoned || to == Retrying) && can && from != Claimed && from != to,
				from.Ended() && to == Cancelled && can:
				t.Errorf("%s can become %s", from, to)
			}
		}
		if again, ok := ParseState(from.String()); !ok || again != from {
			t.Errorf("%s is parsed as %s", from, again)
		}
		if from.Waiting() && !from.CanBecome(Cancelled) {
			t.Errorf("%s is a waiting state, but can't be cancelled", from)
		}
	}
}

func TestSpecIsChecked(t *testing.T) {
	long := strings.Repeat("x", 257)
	hold := -time.Second
	for name, c := range map[string]struct {
		spec  Spec
		field string // "": accepted
	}{
		"least":              {Spec{Type: "t"}, ""},
		"no type":            {Spec{}, "type"},
		"long type":          {Spec{Type: long}, "type"},
		"control character":  {Spec{Type: "a\nb"}, "type"},
		"not UTF-8":          {Spec{Type: "t", Key: "\xff"}, "key"},
		"long key":           {Spec{Type: "t", IdempotencyKey: long}, "idempotency_key"},
		"queue with a slash": {Spec{Type: "t", Queue: "a/b"}, "queue"},
		"queue of dots":      {Spec{Type: "t", Queue: ".."}, "queue"},
		"long queue":         {Spec{Type: "t", Queue: long}, "queue"},
		"large payload":      {Spec{Type: "t", Payload: make([]byte, 1<<20+1)}, "payload"},
		"largest payload":    {Spec{Type: "t", Payload: make([]byte, 1<<20)}, ""},
		"priority":           {Spec{Type: "t", Priority: 9}, "priority"},
		"both times":         {Spec{Type: "t", Delay: 1, RunAt: time.Now()}, "delay"},
		"negative delay":     {Spec{Type: "t", Delay: -1}, "delay"},
		"long delay":         {Spec{Type: "t", Delay: 366 * day}, "delay"},
		"year 10000":         {Spec{Type: "t", RunAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "run_at"},
		"ttl without key":    {Spec{Type: "t", IdempotencyTTL: 1}, "idempotency_ttl"},
		"attempts":           {Spec{Type: "t", MaxAttempts: 1001}, "max_attempts"},
		"timeout":            {Spec{Type: "t", Timeout: 25 * time.Hour}, "timeout"},
		"expires_in":         {Spec{Type: "t", ExpiresIn: -1}, "expires_in"},
		"retention":          {Spec{Type: "t", Retention: &hold}, "retention"},
		"retry":              {Spec{Type: "t", Retry: &Retry{Factor: 0}}, "retry.factor"},
		"tags":               {Spec{Type: "t", Tags: make([]string, 33)}, "tags"},
		"empty tag":          {Spec{Type: "t", Tags: []string{""}}, "tags"},
		"header name":        {Spec{Type: "t", Headers: map[string]string{"": "x"}}, "headers"},
		"large headers":      {Spec{Type: "t", Headers: map[string]string{"x": strings.Repeat("x", 16<<10)}}, "headers"},
	} {
		c.spec.Fill()
		err := c.spec.Check(DefaultLimits())
		e, refused := AsError(err)
		switch {
		case c.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.field != "" && (!refused || e.Field != c.field):
			t.Errorf("%s: %v, want a refusal of %s", name, err, c.field)
		case refused && (len(e.Message) > 300 || !strings.HasPrefix(e.Message, c.field)):
			t.Errorf("%s: the message does not begin with the field or is too long: %q", name, e.Message)
		}
	}
}

func TestUniqueIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		unique Unique
		says   string // "": accepted
	}{
		"least":            {Unique{}, ""},
		"ends too":         {Unique{Key: "k", States: allStates, OnConflict: Reject}, ""},
		"long key":         {Unique{Key: strings.Repeat("x", 257)}, "unique.key: "},
		"replaced":         {Unique{OnConflict: Replace}, ""},
		"waited on":        {Unique{OnConflict: KeepLast}, ""},
		"a hole":           {Unique{States: Unfinished &^ StatesOf(Claimed)}, "unique.states: claimed missing"},
		"holes":            {Unique{States: StatesOf(Ready, Succeeded)}, "unique.states: scheduled, claimed, retrying missing"},
		"no such state":    {Unique{States: Unfinished | 1<<10}, "unique.states: 0x400 has an unknown state"},
		"no such conflict": {Unique{OnConflict: 5}, "unique.on_conflict: 5 is not"},
		"an end to be replaced": {Unique{States: Unfinished | StatesOf(Dead), OnConflict: Replace},
			"unique.states: dead with on_conflict replace"},
		"an end to be waited on": {Unique{States: Unfinished | StatesOf(Dead), OnConflict: KeepLast},
			"unique.states: dead with on_conflict keep_last"},
	} {
		s := Spec{Type: "t", Payload: []byte("1"), Unique: &c.unique}
		s.Fill()
		err := s.Check(DefaultLimits())
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.HasPrefix(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	for _, c := range OnConflicts {
		if again, ok := ParseOnConflict(c.String()); !ok || again != c {
			t.Errorf("%s is parsed as %s", c, again)
		}
	}
}

// A unique key without a name is derived from the content, and differs for different contents.
func TestUniqueKeyOfContent(t *testing.T) {
	keys := map[string]string{}
	for name, s := range map[string]Spec{
		"a of 1":       {Type: "a", Payload: []byte("1")},
		"a of 12":      {Type: "a", Payload: []byte("12")},
		"a1 of 2":      {Type: "a1", Payload: []byte("2")},
		"a of text":    {Type: "a", ContentType: "text/plain", Payload: []byte("1")},
		"at of ext":    {Type: "at", ContentType: "ext/plain", Payload: []byte("1")},
		"a of nothing": {Type: "a"},
	} {
		s.Unique = &Unique{}
		s.Fill()
		if other, taken := keys[s.Unique.Key]; taken {
			t.Errorf("%s and %s have the same unique key", name, other)
		}
		keys[s.Unique.Key] = name
	}
	// The key is stored, and compared with those of other releases.
	one := Spec{Type: "a", Payload: []byte("1"), Unique: &Unique{}}
	if one.Fill(); one.Unique.Key != "sha256:cb9ed6369daef2372a1bcdc9c1e05d22c908f4cc183f44ff0b5b2c698cadba24" {
		t.Errorf("the unique key of the content is %q", one.Unique.Key)
	}
	plain, json := Spec{Type: "a", Unique: &Unique{}}, Spec{Type: "a", ContentType: "application/json", Key: "k",
		Queue: "q", Unique: &Unique{}}
	plain.Fill()
	json.Fill()
	if plain.Unique.Key != json.Unique.Key {
		t.Errorf("with an explicit JSON content type the unique key is %q, without one %q", json.Unique.Key, plain.Unique.Key)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	good := DefaultSettings()
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*Settings){
		"weights.low":         func(s *Settings) { s.Weights = [3]int{70, 20, 0} },
		"max_attempts":        func(s *Settings) { s.MaxAttempts = 0 },
		"lease":               func(s *Settings) { s.Lease = time.Millisecond },
		"timeout":             func(s *Settings) { s.Timeout = -1 },
		"retention.dead":      func(s *Settings) { s.Retention.Dead = -1 },
		"retention.succeeded": func(s *Settings) { s.Retention.Succeeded = 400 * day },
		"max_length":          func(s *Settings) { s.MaxLength = -1 },
		"retry.max":           func(s *Settings) { s.Retry.Max = 0 },
	} {
		s := DefaultSettings()
		spoil(&s)
		if e, ok := AsError(s.Check()); !ok || e.Field != field {
			t.Errorf("Check of invalid %s: %v", field, s.Check())
		}
	}
	c := QueueConfig{Version: 3, Settings: good, Paused: true, PausedReason: "deploy", CreatedAt: time.Unix(1, 0).UTC()}
	if again, err := DecodeQueueConfig(c.Encode()); err != nil || !again.Equal(c) {
		t.Errorf("%+v was decoded as %+v, %v", c, again, err)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		in   string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aé", 2, "a"}, {"a\xffb", 10, "a\uFFFDb"}, {"é", 1, ""}} {
		if got := Cut(c.in, c.n); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.in, c.n, got, c.want)
		}
	}
}
