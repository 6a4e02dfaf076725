package transport

import (
	"sync"
	"time"
)

const (
	// logPause is the pause between two log lines about the same peer.
	logPause = time.Minute
	// maxLogKeys bounds the remembered keys: strangers can use any name.
	maxLogKeys = 256
)

// logLimiter limits the rate of repeated log lines. Its zero value is ready to use.
type logLimiter struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// allow reports whether a line about the key may be logged now. If so, it records that.
func (s *logLimiter) allow(key string) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.last[key]; ok && now.Sub(at) < logPause {
		return false
	}
	if len(s.last) >= maxLogKeys {
		s.forget(now)
	}
	if len(s.last) >= maxLogKeys {
		return false
	}
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	s.last[key] = now
	return true
}

func (s *logLimiter) forget(now time.Time) {
	for key, at := range s.last {
		if now.Sub(at) >= logPause {
			delete(s.last, key)
		}
	}
}
