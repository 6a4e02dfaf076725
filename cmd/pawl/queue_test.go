package main

import (
	"strings"
	"testing"

	"github.com/pawlq/pawl/admin"
)

// Failed, poisoned and cancelled tasks are not drawn as succeeded.
func TestSparklines(t *testing.T) {
	none := []int64{0, 0, 0}
	for _, c := range []struct {
		name             string
		s                admin.QueueSeries
		succeeded, wrong string
	}{
		{"nothing", admin.QueueSeries{Out: none, Succeeded: none, Failed: none, Poisoned: none}, "-", "-"},
		{"all well", admin.QueueSeries{Out: []int64{0, 7, 14}, Succeeded: []int64{0, 7, 14}, Failed: none, Poisoned: none}, "▁▅█", "-"},
		{"all die", admin.QueueSeries{Out: []int64{5, 0, 5}, Succeeded: none, Failed: []int64{5, 0, 5}, Poisoned: none}, "-", "█▁█"},
		{"cancelled", admin.QueueSeries{Out: []int64{5, 0, 5}, Succeeded: none, Failed: none, Poisoned: none}, "-", "-"},
		{"few wrong", admin.QueueSeries{Out: []int64{0, 0, 1000}, Succeeded: []int64{0, 0, 999}, Failed: []int64{0, 1, 1},
			Poisoned: []int64{0, 0,
				1}}, "▁▁█", "▁▂▂"},
	} {
		if succeeded, wrong := sparklines(&c.s); succeeded != c.succeeded || wrong != c.wrong {
			t.Errorf("%s: the sparklines are %s and %s, want %s and %s", c.name, succeeded, wrong, c.succeeded, c.wrong)
		}
	}
	long := make([]int64, 60)
	long[58], long[59] = 3, 4
	if succeeded, _ := sparklines(&admin.QueueSeries{Succeeded: long}); succeeded != strings.Repeat("▁", 29)+"█" {
		t.Errorf("the sparkline of 60 steps is %s", succeeded)
	}
	if succeeded, wrong := sparklines(nil); succeeded != "" || wrong != "" {
		t.Error("sparklines without data are not empty")
	}
}
