package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A certificate expires when it or one of its intermediates does. Without one the time is unknown.
func TestEndOf(t *testing.T) {
	ca, err := NewAuthority(time.Now(), 100)
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(days int) []byte { return parse(t, server(t, ca, days, "a")).Raw }
	long, short := parse(t, server(t, ca, 50, "a")), parse(t, server(t, ca, 20, "a"))
	for what, c := range map[string]struct {
		cert *tls.Certificate
		want time.Time
	}{
		"none": {}, "an empty one": {cert: &tls.Certificate{}}, "no certificate": {cert: &tls.Certificate{Certificate: [][]byte{{1}}}},
		"one":                             {&tls.Certificate{Certificate: [][]byte{long.Raw}}, long.NotAfter},
		"one that was parsed":             {&tls.Certificate{Certificate: [][]byte{{1}}, Leaf: long}, long.NotAfter},
		"its intermediate ends first":     {&tls.Certificate{Certificate: [][]byte{long.Raw, short.Raw}, Leaf: long}, short.NotAfter},
		"it ends before its intermediate": {&tls.Certificate{Certificate: [][]byte{short.Raw, leaf(30)}, Leaf: short}, short.NotAfter},
	} {
		if got := EndOf(c.cert); !got.Equal(c.want) {
			t.Errorf("%s: it ends at %v, want %v", what, got, c.want)
		}
	}
	first, second := authority(t, 10), authority(t, 5)
	for want, file := range map[time.Time][]byte{
		{}:                                 first.Key,
		parse(t, first).NotAfter:           bytes.Join([][]byte{first.Key, first.Cert}, nil),
		parse(t, second).NotAfter:          bytes.Join([][]byte{first.Cert, second.Cert}, nil),
		parse(t, authority(t, 1)).NotAfter: bytes.Join([][]byte{authority(t, 1).Cert, first.Cert}, nil),
	} {
		if got := EndOfFile(file); !got.Equal(want) {
			t.Errorf("the first of a file ends at %v, want %v", got, want)
		}
	}
}

// lockedLog is what another goroutine logs.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// take returns what was logged since the previous call.
func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// What expires within 30 days is logged at once and then daily. A new file ends that.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ahead := 2 * time.Hour // of the wall clock
		var log lockedLog
		var files atomic.Pointer[Ends]
		ends := Ends{Peer: began.Add(ahead + Soon + day), PeerAuthority: began.Add(ahead + Soon), Server: began.Add(ahead + Soon - 1),
			ClientAuthority: {}}
		files.Store(&ends)
		var w Watcher
		if got := w.Ends(); len(got) > 0 {
			t.Errorf("before it runs it has %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.Run(ctx, slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return time.Now().Add(ahead) }, func() Ends {
			return maps.Clone(*files.Load())
		})
		says := func(step string, want ...string) {
			t.Helper()
			synctest.Wait()
			lines := strings.Split(strings.TrimSpace(log.take()), "\n")
			if len(want) == 0 && lines[0] != "" || len(want) > 0 && len(lines) != len(want) {
				t.Errorf("%s: it logs %q, want %q", step, lines, want)
				return
			}
			for i, words := range want {
				if !strings.Contains(lines[i], words) {
					t.Errorf("%s: it logs %q, want %q", step, lines[i], words)
				}
			}
		}
		says("at first", `msg="a certificate expires soon" certificate=server`)
		if got := w.Ends(); len(got) != 3 || !got[Peer].Equal(ends[Peer]) || !got[Server].Equal(ends[Server]) {
			t.Errorf("it has %v", got)
		}
		time.Sleep(day - time.Second)
		says("before a day is over")
		time.Sleep(time.Minute)
		says("after a day", "certificate=peer_ca", "certificate=server")
		next := Ends{Peer: ends[Peer], PeerAuthority: began.AddDate(1, 0, 0), Server: began.AddDate(2, 0, 0)}
		files.Store(&next)
		time.Sleep(readEvery)
		synctest.Wait()
		if got := w.Ends(); !got[Server].Equal(next[Server]) {
			t.Errorf("after the files were replaced it has %v", got)
		}
		time.Sleep(day)
		says("after they were replaced", "level=WARN msg=\"a certificate expires soon\" certificate=peer")
		time.Sleep(Soon)
		synctest.Wait()
		log.take()
		time.Sleep(day)
		says("at the end", "level=ERROR msg=\"a certificate has expired\" certificate=peer")
	})
}

// The end of a file with authorities changes with it.
func TestAuthoritiesUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFolder(t)
		now := func(days int) Pair {
			p, err := NewAuthority(time.Now(), days)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		long, short := now(100), now(10)
		f.write(f.cert, append(long.Cert, short.Cert...))
		a, err := OpenAuthorities(f.cert, slog.New(slog.DiscardHandler))
		if err != nil || !a.Until().Equal(parse(t, short).NotAfter) {
			t.Fatalf("two authorities: until %v, %v", a.Until(), err)
		}
		time.Sleep(2 * checkInterval)
		f.write(f.cert, long.Cert)
		if got := a.Until(); !got.Equal(parse(t, long).NotAfter) {
			t.Errorf("after a change: until %v", got)
		}
	})
}
