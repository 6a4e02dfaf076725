package zonemap

import "testing"

func TestFeatures(t *testing.T) {
	var s features
	for f := range feature(maxFeatures) {
		if !s.add(f) || s.add(f) || !s.may(f) || s.may(f+1) {
			t.Fatalf("feature %d: %v", f, s)
		}
	}
	if !s.add(maxFeatures) || !s.may(60_000) {
		t.Errorf("with one feature too many the set still excludes others: %v", s)
	}
	if s.add(60_000) || len(s.has) > 0 {
		t.Errorf("a set that includes all features accepted another: %v", s)
	}
}
