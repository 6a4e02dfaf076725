package pawl_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/pawltype"
)

func TestUniqueIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, client := start(t)
		for _, c := range []struct {
			unique pawltype.UniqueOpts
			want   string
		}{
			{pawltype.UniqueOpts{}, " [] ON_CONFLICT_UNSPECIFIED"},
			{pawltype.UniqueOpts{Key: "k", OnConflict: pawltype.OnConflictKeep}, "k [] ON_CONFLICT_KEEP"},
			{pawltype.UniqueOpts{OnConflict: pawltype.OnConflictReplace}, " [] ON_CONFLICT_REPLACE"},
			{pawltype.UniqueOpts{OnConflict: pawltype.OnConflictKeepLast}, " [] ON_CONFLICT_KEEP_LAST"},
			{pawltype.UniqueOpts{States: []pawltype.State{pawltype.StateReady, pawltype.StateDead}, OnConflict: pawltype.OnConflictReject},
				" [STATE_READY STATE_DEAD] ON_CONFLICT_REJECT"},
		} {
			if _, err := client.Enqueue(t.Context(), welcome{}, pawl.Unique(c.unique)); err != nil {
				t.Fatal(err)
			}
			u := f.enqueues[len(f.enqueues)-1][0].GetUnique()
			if got := fmt.Sprint(u.GetKey(), " ", u.GetStates(), " ", u.GetOnConflict()); got != c.want {
				t.Errorf("%+v: sent %s, want %s", c.unique, got, c.want)
			}
		}
		for want, bad := range map[string]pawl.Option{ // unknown words have no number in the protocol, so the broker could not name them
			`unique.key: "\xff" is not valid UTF-8`: pawl.Unique(pawltype.UniqueOpts{Key: "\xff"}),
			`unique.states: "odd" is not a state`: pawl.Unique(pawltype.UniqueOpts{
				States: []pawltype.State{"odd"}}),
			`unique.states: "" is not a state`: pawl.Unique(pawltype.UniqueOpts{
				States: []pawltype.State{""}}),
			`unique.on_conflict: "odd" is not keep, replace, keep_last or reject`: pawl.Unique(pawltype.UniqueOpts{OnConflict: "odd"}),
			`unique.on_conflict: "odd\nodd" is not keep, replace, keep_last or reject`: pawl.Unique(pawltype.UniqueOpts{
				OnConflict: "odd\nodd"}),
			`priority: "urgent" is not high, normal or low`: pawl.Priority("urgent"),
		} {
			_, err := client.Enqueue(t.Context(), welcome{}, bad)
			if refused, ok := errors.AsType[*pawltype.Error](err); !ok || refused.Message != want {
				t.Errorf("%+v: %v, want %s", bad, err, want)
			}
		}
	})
}
