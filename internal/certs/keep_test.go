package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// A server's certificate is made once, replaced when half of its time has passed, its hosts change, or it is damaged, and always signed by
// the first authority.
func TestKeepServer(t *testing.T) {
	dir, hosts := filepath.Join(t.TempDir(), "tls"), []string{"localhost", "127.0.0.1", "::1", "n1.example.com"}
	at := now
	var authority []byte
	var last *x509.Certificate
	keep := func(what string, want bool, hosts ...string) {
		t.Helper()
		file, made, err := KeepServer(dir, at, hosts)
		if err != nil || made != want {
			t.Fatalf("%s: made %v, %v, want %v", what, made, err, want)
		}
		pair, err := tls.LoadX509KeyPair(file, file)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
		if err != nil || authority != nil && !bytes.Equal(ca, authority) {
			t.Fatalf("%s: the authority is another one, %v", what, err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(ca)
		for _, host := range hosts {
			if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots, CurrentTime: at}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if last != nil && made == last.Equal(pair.Leaf) {
			t.Errorf("%s: the certificate is the same: %v", what, !made)
		}
		authority, last = ca, pair.Leaf
	}
	keep("the first", true, hosts...)
	keep("again", false, hosts...)
	at = at.Add(198 * day)
	keep("before half of its time", false, hosts...)
	at = at.Add(2 * day)
	keep("after half of its time", true, hosts...)
	keep("one host less", true, hosts[:3]...)
	keep("one host more", true, hosts...)
	keep("another host", true, append(hosts[:3:3], "n2.example.com")...)
	if err := os.WriteFile(filepath.Join(dir, "server.pem"), []byte("-----BEGIN"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep("a damaged file", true, hosts...)
	at = at.Add(-100 * day)
	keep("a clock that went back", true, hosts...)
	at = at.Add(3400 * day)
	keep("near the end of the authority", true, hosts...)

	for name, mode := range map[string]os.FileMode{"ca.crt": 0o644, "ca.key": 0o600, "server.pem": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want mode %v", name, info.Mode(), err, mode)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("the directory holds %v, %v", left, err)
	}
	at = at.Add(1000 * day)
	if _, _, err := KeepServer(dir, at, hosts); err == nil || !strings.Contains(err.Error(),
		"ca.crt is valid until 2035-12-31: remove it") {
		t.Errorf("after the end of the authority: %v", err)
	}
}

// Without its certificate an authority was not finished: another one is made. Without its key, nothing is.
func TestKeepServerWithoutAllFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ca.key"), []byte("left by a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, made, err := KeepServer(dir, now, []string{"localhost"}); err != nil || !made {
		t.Errorf("without ca.crt: %v, %v", made, err)
	}
	if err := os.Remove(filepath.Join(dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	if _, made, err := KeepServer(dir, now, []string{"localhost"}); err != nil || made {
		t.Errorf("without ca.key, with a certificate that lasts: %v, %v", made, err)
	}
	if _, _, err := KeepServer(dir, now.Add(300*day), []string{"localhost"}); err == nil ||
		!strings.Contains(err.Error(), "ca.key: no such file") {
		t.Errorf("without ca.key: %v", err)
	}
	if _, _, err := KeepServer(filepath.Join(dir, "server.pem"), now, []string{"localhost"}); err == nil {
		t.Error("a directory that is a file: no error")
	}
}

// Clients verify the server by ca.crt: a certificate by another authority is replaced at the next start, or within a day.
func TestKeepServerOfAnotherAuthority(t *testing.T) {
	dir := t.TempDir()
	keep := func(what string) {
		t.Helper()
		file, made, err := KeepServer(dir, now, []string{"localhost"})
		if err != nil || !made {
			t.Fatalf("%s: made %v, %v", what, made, err)
		}
		var found [2]*x509.Certificate
		for i, path := range []string{file, filepath.Join(dir, "ca.crt")} {
			b, err := os.ReadFile(path)
			if err == nil {
				found[i], err = Parse(b)
			}
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if err := found[0].CheckSignatureFrom(found[1]); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	keep("at first")
	ca := authority(t, 100)
	for name, content := range map[string][]byte{"ca.crt": ca.Cert, "ca.key": ca.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep("another authority")
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	keep("no authority")
}

// Processes that start at the same time on an empty directory agree on one authority and one certificate.
func TestKeepServerAtTheSameTime(t *testing.T) {
	for range 5 {
		dir, hosts := filepath.Join(t.TempDir(), "tls"), []string{"localhost"}
		var made atomic.Int32
		var starts sync.WaitGroup
		for range 8 {
			starts.Go(func() {
				_, one, err := KeepServer(dir, now, hosts)
				if err != nil {
					t.Error(err)
				}
				if one {
					made.Add(1)
				}
			})
		}
		starts.Wait()
		current, _ := os.ReadFile(filepath.Join(dir, serverPair))
		ca, _ := os.ReadFile(filepath.Join(dir, authorityCert))
		if made.Load() != 1 || !serves(current, ca, now, hosts) {
			t.Errorf("%d of 8 starts made a certificate, want 1; the authority signed it: %v", made.Load(), serves(current, ca, now, hosts))
		}
		if _, err := keptAuthority(dir, now); err != nil {
			t.Error(err)
		}
	}
}

// Where a directory can't be locked, as on NFS, a file in it is. Elsewhere none is left.
func TestLockWithoutDirectories(t *testing.T) {
	for nfs, want := range map[bool]string{false: "", true: lockFile} {
		dir := t.TempDir()
		try := func(f *os.File) error {
			if info, err := f.Stat(); err != nil || nfs && info.IsDir() {
				return errors.Join(syscall.EBADF, err)
			}
			return flock(f)
		}
		unlock, err := lock(dir, try)
		if err != nil {
			t.Fatal(err)
		}
		locked := make(chan error)
		go func() {
			second, err := lock(dir, try)
			if err == nil {
				second()
			}
			locked <- err
		}()
		select {
		case err := <-locked:
			t.Errorf("nfs %v: it is locked twice, %v", nfs, err)
		default:
		}
		unlock()
		if err := <-locked; err != nil {
			t.Error(err)
		}
		names := ""
		left, _ := os.ReadDir(dir)
		for _, e := range left {
			names += e.Name()
		}
		if names != want {
			t.Errorf("nfs %v: left is %q, want %q", nfs, names, want)
		}
	}
	refused := errors.New("refused")
	if _, err := lock(t.TempDir(), func(*os.File) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("another error: %v", err)
	}
}
