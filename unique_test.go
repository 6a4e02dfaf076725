package pawl_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl"
)

func TestUniqueIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		for _, c := range []struct {
			unique pawl.Unique
			want   string
		}{
			{pawl.Unique{}, " [] ON_CONFLICT_UNSPECIFIED"},
			{pawl.Unique{Key: "k", OnConflict: pawl.OnConflictKeep}, "k [] ON_CONFLICT_KEEP"},
			{pawl.Unique{OnConflict: pawl.OnConflictReplace}, " [] ON_CONFLICT_REPLACE"},
			{pawl.Unique{OnConflict: pawl.OnConflictKeepLast}, " [] ON_CONFLICT_KEEP_LAST"},
			{pawl.Unique{States: []pawl.State{pawl.StateReady, pawl.StateDead}, OnConflict: pawl.OnConflictReject}, " [STATE_READY STATE_DEAD] ON_CONFLICT_REJECT"},
		} {
			if _, err := client.Enqueue(t.Context(), welcome{}, c.unique); err != nil {
				t.Fatal(err)
			}
			u := f.enqueues[len(f.enqueues)-1][0].GetUnique()
			if got := fmt.Sprint(u.GetKey(), " ", u.GetStates(), " ", u.GetOnConflict()); got != c.want {
				t.Errorf("%+v: sent %s, want %s", c.unique, got, c.want)
			}
		}
		for want, bad := range map[string]pawl.Option{ // words have no number in the protocol, so that the broker could not name them
			`unique.key: "\xff" is not valid UTF-8`:                                    pawl.Unique{Key: "\xff"},
			`unique.states: "odd" is not a state`:                                      pawl.Unique{States: []pawl.State{"odd"}},
			`unique.states: "" is not a state`:                                         pawl.Unique{States: []pawl.State{""}},
			`unique.on_conflict: "odd" is not keep, replace, keep_last or reject`:      pawl.Unique{OnConflict: "odd"},
			`unique.on_conflict: "odd\nodd" is not keep, replace, keep_last or reject`: pawl.Unique{OnConflict: "odd\nodd"},
			`priority: "urgent" is not high, normal or low`:                            pawl.Priority("urgent"),
		} {
			_, err := client.Enqueue(t.Context(), welcome{}, bad)
			if refused, ok := errors.AsType[*pawl.Error](err); !ok || refused.Message != want {
				t.Errorf("%+v: %v, want %s", bad, err, want)
			}
		}
	})
}
