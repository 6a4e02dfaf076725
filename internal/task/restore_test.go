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
			t.Errorf("got %+v", s)
		}
		return s.RequestID
	}
	id := ID{15: 1}
	first := request("a", id, ended)
	if again := request("a", id, ended.In(time.FixedZone("", 3600))); again != first {
		t.Errorf("the same dead letter has the requests %s and %s", first, again)
	}
	for what, other := range map[string]ID{"namespace": request("b", id, ended), "task": request("a", ID{15: 2}, ended), "end": request("a", id, ended.Add(time.Microsecond))} {
		if other == first {
			t.Errorf("another %s, and the same request", what)
		}
	}
}
