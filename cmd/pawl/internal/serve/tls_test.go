package serve

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pawlq/pawl/internal/certs"
)

// A server that runs for years always has a valid certificate.
func TestCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flags{tls: tlsFlags{dir: t.TempDir()}}
		s.peers.apiAdvertise = "n1.example.com:7295"
		hosts := s.certified()
		if !slices.Contains(hosts, "n1.example.com") || !slices.Contains(hosts, "localhost") {
			t.Errorf("the certificate is for %q", hosts)
		}
		pair, err := s.tls.open(hosts, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.tls.keep(ctx, hosts, slog.New(slog.DiscardHandler))
		for range 3 * 12 {
			time.Sleep(30 * renewEvery)
			synctest.Wait()
			if left := time.Until(pair.Now().Leaf.NotAfter); left < 100*24*time.Hour {
				t.Fatalf("the certificate is valid for %v", left)
			}
		}
	})
}

// The node gets the authorities of --client-ca, and when they expire.
func TestClientAuthorities(t *testing.T) {
	ca, err := certs.NewAuthority(time.Now(), 10)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca.Cert, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := (&tlsFlags{cert: "s.crt", clientCA: file, clientAuth: clientAuthRequire}).openClients(slog.New(slog.DiscardHandler))
	if err != nil || !c.Required || c.Authorities() == nil || !c.Until().Equal(certs.EndOfFile(ca.Cert)) {
		t.Errorf("client certificates: %+v, %v", c, err)
	}
}
