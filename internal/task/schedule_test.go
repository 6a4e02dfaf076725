package task

import (
	"testing"
	"time"
)

// Empty and omitted fields make the same schedule, whichever way it was made.
func TestEqualSchedules(t *testing.T) {
	left := Schedule{Name: "s", Every: time.Minute, Task: Spec{Type: "job"}}
	said := left
	said.Task.Payload, said.Task.Tags, said.Task.Headers, said.Task.Cost = []byte{}, []string{}, map[string]string{}, 1
	left.Fill()
	said.Fill()
	stored, err := DecodeSchedule(said.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if !left.Equal(&said) || !left.Equal(&stored) {
		t.Errorf("%s is not equal to %s", left.Encode(), said.Encode())
	}
	for field, other := range map[string]func(*Schedule){
		"payload": func(s *Schedule) { s.Task.Payload = []byte("0") }, "tags": func(s *Schedule) { s.Task.Tags = []string{"x"} },
		"headers": func(s *Schedule) { s.Task.Headers = map[string]string{"a": ""} }, "cost": func(s *Schedule) { s.Task.Cost = 2 },
		"jitter": func(s *Schedule) { s.Jitter = 1 }, "time_zone": func(s *Schedule) { s.TimeZone = "UTC" },
	} {
		s := left
		if other(&s); left.Equal(&s) {
			t.Errorf("a schedule with another %s counts as equal", field)
		}
	}
}
