package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"
)

// What certificates are for, in Ends.
const (
	Server          = "server"    // presented to clients
	ClientAuthority = "client_ca" // it signs those of clients
	Peer            = "peer"      // presented to other nodes
	PeerAuthority   = "peer_ca"   // it signs those of nodes
)

// Ends says when certificates expire, by what they are for.
type Ends map[string]time.Time

const (
	// Soon is how long before its end the log warns of a certificate, and logEvery is how often.
	Soon     = 30 * day
	logEvery = day
	// readEvery is how often a Watcher reads the files.
	readEvery = time.Minute
)

// Watcher knows when the certificates of this process expire. It reads them itself: files on a disk that hangs hold up nobody else.
type Watcher struct{ ends atomic.Pointer[Ends] }

// Ends returns when the certificates expire, as they were read last.
func (w *Watcher) Ends() Ends {
	if ends := w.ends.Load(); ends != nil {
		return *ends
	}
	return nil
}

// Run reads the certificates, and logs at once and daily which of them expire soon, until ctx ends. A zero time in what read returns is
// unknown.
func (w *Watcher) Run(ctx context.Context, log *slog.Logger, wall func() time.Time, read func() Ends) {
	for logged := (time.Time{}); ; {
		ends := read()
		maps.DeleteFunc(ends, func(_ string, end time.Time) bool { return end.IsZero() })
		w.ends.Store(&ends)
		if now := time.Now(); now.Sub(logged) >= logEvery {
			logged = now
			ends.log(log, wall())
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(readEvery):
		}
	}
}

func (e Ends) log(log *slog.Logger, now time.Time) {
	for _, of := range slices.Sorted(maps.Keys(e)) {
		switch left := e[of].Sub(now); {
		case left <= 0:
			log.Error("a certificate has expired", "certificate", of, "until", e[of])
		case left < Soon:
			log.Warn("a certificate expires soon", "certificate", of, "until", e[of], "days", int(left/day))
		}
	}
}

// EndOf returns when a certificate or one of its intermediates expires; zero: there is none.
func EndOf(c *tls.Certificate) (end time.Time) {
	if c == nil {
		return end
	}
	for i, der := range c.Certificate {
		if i == 0 && c.Leaf != nil {
			end = earlier(end, c.Leaf)
		} else if parsed, err := x509.ParseCertificate(der); err == nil {
			end = earlier(end, parsed)
		}
	}
	return end
}

// EndOfFile returns when the first of the certificates in a PEM file expires; zero: there is none.
func EndOfFile(file []byte) (end time.Time) {
	for {
		var block *pem.Block
		if block, file = pem.Decode(file); block == nil {
			return end
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			end = earlier(end, c)
		}
	}
}

func earlier(end time.Time, c *x509.Certificate) time.Time {
	if end.IsZero() || c.NotAfter.Before(end) {
		return c.NotAfter
	}
	return end
}
