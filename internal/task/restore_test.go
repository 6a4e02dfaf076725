package task

import (
	"testing"
	"time"
)

func TestRestoredRequests(t *testing.T) {
	ended := time.UnixMicro(1_700_000_000_000_001)
	request := func(ns string, id ID, ended time.Time) ID {
		var s Spec
		s.Restore(ns, id, ended)
		if s.Archived != id || s.RequestTTL != MaxHold || s.RequestID.IsV7() || s.RequestID[6]>>4 != 8 || s.RequestID[8]>>6 != 2 {
			t.Errorf("the restored spec is %+v", s)
		}
		return s.RequestID
	}
	id := ID{15: 1}
	first := request("a", id, ended)
	// What one release restored is found by the next: request ids never change.
	for last, want := range map[byte]string{1: "2fa9387b-6ac4-8dc5-9a30-2c5c87cf54fc", 4: "953c9ae1-4f2c-8095-9750-9f46d98fa491"} {
		if got := request("a", ID{15: last}, ended).String(); got != want {
			t.Errorf("the request id of a dead letter is %s, want %s", got, want)
		}
	}
	if again := request("a", id, ended.In(time.FixedZone("", 3600))); again != first {
		t.Errorf("the same dead letter has the request ids %s and %s", first, again)
	}
	for what, other := range map[string]ID{"namespace": request("b", id, ended), "task": request("a", ID{15: 2}, ended), "end": request("a", id, ended.Add(time.Microsecond))} {
		if other == first {
			t.Errorf("with another %s the request id is the same", what)
		}
	}
}
