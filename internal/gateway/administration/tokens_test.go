package administration

import (
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/gateway/apiproto"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/system/tokens"
	"github.com/pawlq/pawl/internal/task"
)

// A caller that may not create a token learns which of its own limits the token exceeds.
func TestTokensBeyondTheirCreator(t *testing.T) {
	made := auth.Rights{Namespace: "other", Roles: auth.Admin}
	for _, c := range []struct {
		maker auth.Rights
		says  string
	}{
		{auth.Rights{Namespace: "team", Roles: auth.Admin}, "limited to namespace"}, {auth.Rights{Namespace: "other", Roles: auth.Admin,
			Queues: []string{"mail"}}, "limited to the queues mail"},
		{auth.Rights{Namespace: "*", Roles: auth.Operate, Queues: nil}, "has the role operate"},
		{auth.Rights{Namespace: "other", Roles: auth.Operate}, "has the role operate"},
	} {
		if err := checkWithin(callinfo.Principal{Principal: &auth.Principal{Name: "maker", Rights: c.maker}},
			made); !strings.Contains(err.Error(), c.says) {
			t.Errorf("maker %+v: %v, want %q", c.maker, err, c.says)
		}
	}
}

// Only a call with a request id carries the time at which it was first made.
func TestRepeatableCalls(t *testing.T) {
	for id, asked := range map[string]bool{"": false, someID: true} {
		var c tokens.Call
		if err := again(&c, id); err != nil || c.Asked.IsZero() == asked || (c.Request == task.ID{}) == asked {
			t.Errorf("request id %q: call %+v, %v", id, c, err)
		}
	}
	for _, sqs := range []bool{true, false} {
		token := &auth.Token{Name: "t", SQS: sqs, Hash: auth.HashOf("x")}
		if key := accessKeyOf(token); (key.ID != "") != sqs || (key.Secret != "") != sqs || tokenProto(token).GetAccessKeyId() != key.ID {
			t.Errorf("token with SQS %t has the access key %+v", sqs, key)
		}
	}
	for _, r := range []auth.Rights{{Namespace: "team", Roles: auth.Admin}, {Namespace: "*", Roles: auth.Admin, Queues: []string{"mail"}},
		auth.Everything} {
		ctx, c := callinfo.Begin(t.Context(), "grpc", "test")
		c.Principal = callinfo.Principal{Principal: &auth.Principal{Name: "maker", Rights: r}}
		_, err := (&AccessService{}).proofOf(ctx, &auth.Token{}, "dns:worker.example")
		if limited := r.Namespace != "*" || r.Queues != nil; (err != nil) != limited {
			t.Errorf("proofOf a certificate for a maker with %+v: %v", r, err)
		}
	}
	if apiproto.WallProto(time.Time{}) != nil || apiproto.WallProto(time.Unix(5, 0)).AsTime().Unix() != 5 {
		t.Error("WallProto changed a time")
	}
}

const someID = "0b5e4d52-7b1c-4c58-9f0b-9d9d5f3f0001"
