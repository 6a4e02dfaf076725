package admin_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/pawltype"
)

func TestFilterLanguage(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"queue:mail state:dead", "queue:mail state:dead"},
		{"state:dead,poisoned queue:mail", "queue:mail state:dead,poisoned"},
		{`error:"timed out"`, `error:"timed out"`},
		{`error:"a \"quoted\" word"`, `error:"a \"quoted\" word"`},
		{`key:"C:\\temp dir"`, `key:"C:\\temp dir"`},
		{"hello world", `q:"hello world"`},
		{"payload:x", "q:x"},
		{"payload.customer.id:42 queue:mail", "queue:mail payload.customer.id:42"},
		{`args.to:"a b" args.items.0.sku:x:y`, `payload.to:"a b" payload.items.0.sku:x:y`},
		{`payload.a\.b\:c\ d\"e:1`, `payload.a\.b\:c\ d\"e:1`},
		{`payload.empty:""`, `payload.empty:""`},
		{`args.a\ b:1`, `payload.a\ b:1`},
		{`payload.x`, "q:payload.x"},
		{"hello queue:mail", "queue:mail q:hello"},
		{":x", "q::x"},
		{`"a:b c"`, `q:"a:b c"`},
		{`say"a:b"`, `q:say"a:b"`},
		{`key:"\"x"`, `key:"\"x"`},
		{"q:" + strings.Repeat("x", 4094), "q:" + strings.Repeat("x", 4094)},
		{"type:a:b", "type:a:b"},
		{"tag:vip worker:w1 operation:op-1", "tag:vip worker:w1 operation:op-1"},
		{"fingerprint:00ff00ff00ff00ff", "fingerprint:00ff00ff00ff00ff"},
		{"after:2h", "created_after:2026-01-31T10:00:00Z"},
		{"before:2026-01-01T00:00:00Z", "created_before:2026-01-01T00:00:00Z"},
		{"before:2026-01-01T02:00:00+02:00", "created_before:2026-01-01T00:00:00Z"},
		{"after:2026-01-30", "created_after:2026-01-30T00:00:00Z"},
		{"after:2026-01-30T09:30", "created_after:2026-01-30T09:30:00Z"},
		{`after:"2026-01-30 09:30:01"`, "created_after:2026-01-30T09:30:01Z"},
		{"created_after:1d", "created_after:2026-01-30T12:00:00Z"},
	} {
		f, err := admin.ParseFilter(c.text, now)
		if got := f.String(); err != nil || got != c.want {
			t.Errorf("%q is parsed as %q, %v, want %q", c.text, got, err, c.want)
		}
		again, err := admin.ParseFilter(f.String(), now)
		if err != nil || again.String() != c.want {
			t.Errorf("%q, formatted and parsed again, is %q, %v", c.text, again.String(), err)
		}
	}
	for text, says := range map[string]string{
		"color:red": "the fields are queue, state, type", "state:sleeping": "the states are scheduled, ready, claimed",
		"queue:": "queue: has no value", "queue: mail": "queue: has no value",
		`error:"open`: `the quotation mark before "open" is not closed`, `error:"a\`: "is not closed", `error:"a\"`: "is not closed",
		`a\:b`: "not a field", "queue:a queue:b": "twice", "payload.a:1 args.a:2": "twice", "payload.:1": "not a field",
		"payload.a:": "no value", "queues.a:1": "payload.PATH", "after:tomorrow": "such as 2026-01-31", "after:-2h": "age",
		"after:NaNd": "age", strings.Repeat("x", 4097): "4097 bytes, at most 4096", "q:\xff": "UTF-8",
	} {
		if _, err := admin.ParseFilter(text, now); !errors.Is(err, pawltype.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40q: %v, want an error with %q", text, err, says)
		}
	}
	terms, err := admin.ParseFilterTerms("queue:mail after:2h state:dead")
	if got := terms.With("state", "").With("queue", "a b").String(); err != nil || got != `created_after:2h queue:"a b"` {
		t.Errorf("the changed terms are %s, %v", got, err)
	}
}
