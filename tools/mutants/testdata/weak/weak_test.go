package weak

import "testing"

func TestWeak(t *testing.T) {
	if Both(true, true) != 1 || Both(false, true) != 2 {
		t.Error("both")
	}
	if !Fits(0) || Fits(9) {
		t.Error("fits")
	}
	if Least(1, 2) != 1 || Least(2, 1) != 1 {
		t.Error("least")
	}
	if !Kind("a") || Kind("c") {
		t.Error("kind")
	}
	if Save(&Disk{Fails: true}) == nil || Save(&Disk{}) != nil {
		t.Error("save")
	}
	if Sign(0) != "+" {
		t.Error("sign")
	}
	if !Any([]int{1}, true) || Any([]int{1}, false) {
		t.Error("any")
	}
	var p Point
	if made := Put(&p); p.X != 3 || made.Y != 4 {
		t.Error("put")
	}
	if a, b := Range(); a+b != 3 {
		t.Error("range")
	}
}
