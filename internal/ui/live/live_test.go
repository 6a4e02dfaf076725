package live

import (
	"testing"
	"time"
)

// TestManyTabsRefreshLessOften: all open pages together refresh at most maxNoticesPerSecond times a second.
func TestManyTabsRefreshLessOften(t *testing.T) {
	for n, want := range map[int]time.Duration{1: noticeGap, 10: time.Second, 100: 10 * time.Second, maxLive: 50 * time.Second} {
		if got := gapOf(n); got != want {
			t.Errorf("with %d streams the pause between notices is %v, want %v", n, got, want)
		}
	}
}
