package administration

import (
	"testing"
	"testing/synctest"
	"time"
)

// The next attempt is returned only while it is in the future.
func TestAttemptsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for after, told := range map[time.Duration]bool{-1: false, 0: false, 1: true} {
			if p := ahead(now.Add(after)); (p != nil) != told || told && !p.AsTime().Equal(now.Add(after)) {
				t.Errorf("ahead of an attempt in %v = %v", after, p)
			}
		}
	})
}
