package transport

import (
	"sync"
	"time"
)

const (
	// seldomPause lies between two lines of the log about the same peer.
	seldomPause = time.Minute
	// seldomKeys bounds the memory of what was said: strangers can give themselves any name.
	seldomKeys = 256
)

// seldom keeps the log from saying the same again and again. Its zero value is ready.
type seldom struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// may reports whether something may be said about the key now, and notes that it was.
func (s *seldom) may(key string) bool {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.last[key]; ok && now.Sub(at) < seldomPause {
		return false
	}
	if len(s.last) >= seldomKeys {
		s.forget(now)
	}
	if len(s.last) >= seldomKeys {
		return false
	}
	if s.last == nil {
		s.last = map[string]time.Time{}
	}
	s.last[key] = now
	return true
}

func (s *seldom) forget(now time.Time) {
	for key, at := range s.last {
		if now.Sub(at) >= seldomPause {
			delete(s.last, key)
		}
	}
}
