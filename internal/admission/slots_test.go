package admission

import "testing"

// One namespace can't take all slots.
func TestSlots(t *testing.T) {
	s := NewSlots(4)
	for i, step := range []struct {
		ns      string
		ok, own bool
	}{{"a", true, false}, {"a", true, false}, {"a", false, true}, {"b", true, false}, {"c", true, false}, {"c", false, false},
		{"d", false, false}, {"a", false, true}} {
		if ok, own := s.TryAcquire(step.ns); ok != step.ok || own != step.own {
			t.Errorf("step %d: TryAcquire(%s) = %v, %v", i, step.ns, ok, own)
		}
	}
	s.Release("a")
	if ok, _ := s.TryAcquire("d"); !ok {
		t.Error("a released slot could not be acquired")
	}
	for _, ns := range []string{"a", "b", "c", "d"} {
		s.Release(ns)
	}
	if s.taken != 0 || len(s.of) != 0 {
		t.Errorf("%d slots are still taken, by %v", s.taken, s.of)
	}
}
