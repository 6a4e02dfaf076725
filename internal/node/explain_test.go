package node

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
	"github.com/pawlq/pawl/claims"
	"github.com/pawlq/pawl/pawltype"
)

// Whichever node is asked, it knows the workers at others, since all ask the leader; and when the majority is gone it says so.
func TestExplainInACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		w.form()
		id, _ := enqueue(t, w.nodes["n1"].client(), "mail")
		want := func(node, what string, codes ...admin.ReasonCode) *admin.Explanation {
			t.Helper()
			e, err := admin.New(w.nodes[node].client()).Tasks().Explain(t.Context(), id)
			if err != nil {
				t.Fatalf("%s, at %s: %v", what, node, err)
			}
			var got []admin.ReasonCode
			for _, r := range e.Reasons {
				got = append(got, r.Code)
			}
			if !slices.Equal(got, codes) {
				t.Errorf("%s, at %s: %+v, want %v", what, node, e.Reasons, codes)
			}
			return e
		}
		for _, node := range []string{"n1", "n2", "n3"} {
			want(node, "nobody asked", admin.ReasonNoWorker)
		}
		ctx, hangUp := context.WithCancel(t.Context())
		defer hangUp()
		claiming := make(chan struct{})
		go func() {
			defer close(claiming)
			_, _ = claims.New(w.nodes["n2"].client()).Claim(ctx, claims.Request{Queues: pawl.Strict{"mail"}, Types: []string{"other"},
				Wait: 30 * time.Second, Worker: "w2"})
		}()
		pass(time.Second)
		for _, node := range []string{"n1", "n2", "n3"} {
			if r := want(node, "a worker of node 2 waits for another type", admin.ReasonNoWorkerForType).Reasons[0]; !slices.Equal(r.Types,
				[]string{"other"}) {
				t.Errorf("at %s the worker takes %v", node, r.Types)
			}
		}
		hangUp()
		<-claiming

		w.crash("n1")
		w.crash("n2")
		pass(time.Minute)
		began := time.Now()
		e := want("n3", "alone", admin.ReasonNoLeader)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
		if e.State != pawltype.StateReady || e.Reasons[0].Since.IsZero() || !strings.Contains(e.Reasons[0].Detail,
			"the task was ready at most 1m") {
			t.Errorf("alone it says %+v", e)
		}
		began = time.Now()
		q, err := admin.New(w.nodes["n3"].client()).Queues().Explain(t.Context(), "mail")
		if err != nil || !q.Partial || len(q.Reasons) != 1 || q.Reasons[0].Code != admin.ReasonNoLeader {
			t.Errorf("alone it says of the queue %+v, %v", q, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("of the queue it took %v", took)
		}
	})
}
