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
			{pawl.Unique{States: []pawl.State{"odd"}, OnConflict: "odd"}, " [STATE_UNSPECIFIED] -1"}, // for the broker to refuse
		} {
			if _, err := client.Enqueue(t.Context(), welcome{}, c.unique); err != nil {
				t.Fatal(err)
			}
			u := f.enqueues[len(f.enqueues)-1][0].GetUnique()
			if got := fmt.Sprint(u.GetKey(), " ", u.GetStates(), " ", u.GetOnConflict()); got != c.want {
				t.Errorf("%+v: sent %s, want %s", c.unique, got, c.want)
			}
		}
		_, err := client.Enqueue(t.Context(), welcome{}, pawl.Unique{Key: "\xff"})
		var refused *pawl.Error
		if !errors.As(err, &refused) || refused.Field != "unique.key" {
			t.Errorf("a key that is no text: %v", err)
		}
	})
}
