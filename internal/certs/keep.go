package certs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Files in a directory of KeepServer.
const (
	authorityCert = "ca.crt" // for clients
	authorityKey  = "ca.key"
	serverPair    = "server.pem" // the certificate and its key in one file, so that they are always replaced together
)

const (
	keptAuthorityDays = 3650
	keptServerDays    = 398 // the most that browsers accept
)

// KeepServer makes sure that a directory holds a certificate of a server for these hosts that is valid for another half of its time, and
// the authority that signed it. It creates what is missing, and replaces the server's certificate, but never the authority, which clients
// know. It returns the file with the certificate and its key, and whether it wrote that file.
func KeepServer(dir string, now time.Time, hosts []string) (file string, made bool, err error) {
	file = filepath.Join(dir, serverPair)
	current, err := os.ReadFile(file)
	ca, caErr := os.ReadFile(filepath.Join(dir, authorityCert))
	if err == nil && caErr == nil && serves(current, ca, now, hosts) {
		return file, false, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", false, err
	}
	unlock, err := Lock(dir)
	if err != nil {
		return "", false, err
	}
	defer unlock()
	current, err = os.ReadFile(file) // another process may have made them meanwhile
	ca, caErr = os.ReadFile(filepath.Join(dir, authorityCert))
	if err == nil && caErr == nil && serves(current, ca, now, hosts) {
		return file, false, nil
	}
	authority, err := keptAuthority(dir, now)
	if err != nil {
		return "", false, err
	}
	signer, err := Parse(authority.Cert)
	if err != nil {
		return "", false, fmt.Errorf("%s: %w", filepath.Join(dir, authorityCert), err)
	}
	days := min(keptServerDays, int(signer.NotAfter.Sub(now)/day))
	if days < 1 {
		return "", false, fmt.Errorf("%s is valid until %s: remove it to have another one made, and give that to the clients",
			filepath.Join(dir, authorityCert), signer.NotAfter.UTC().Format(time.DateOnly))
	}
	pair, err := NewServer(authority, now, days, "server", hosts)
	if err != nil {
		return "", false, err
	}
	return file, true, Replace(file, append(pair.Cert, pair.Key...), 0o600)
}

// serves reports whether a certificate is for exactly these hosts, this authority signed it, and more than half of its time is left.
func serves(file, authority []byte, now time.Time, hosts []string) bool {
	c, err := Parse(file)
	if err != nil || now.Before(c.NotBefore) || now.Sub(c.NotBefore) > c.NotAfter.Sub(now) ||
		len(c.DNSNames)+len(c.IPAddresses) != len(hosts) {
		return false
	}
	if ca, err := Parse(authority); err != nil || c.CheckSignatureFrom(ca) != nil {
		return false
	}
	for _, host := range hosts {
		if c.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// keptAuthority returns the authority in dir, which it makes if there is none. The certificate is written last: without it there is none.
func keptAuthority(dir string, now time.Time) (p Pair, err error) {
	cert, key := filepath.Join(dir, authorityCert), filepath.Join(dir, authorityKey)
	if p.Cert, err = os.ReadFile(cert); err == nil {
		p.Key, err = os.ReadFile(key)
		return p, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	if p, err = NewAuthority(now, keptAuthorityDays); err != nil {
		return p, err
	}
	if err := Replace(key, p.Key, 0o600); err != nil {
		return p, err
	}
	return p, Replace(cert, p.Cert, 0o644)
}

// Lock waits until no other process changes the files of a directory, and keeps others from it until unlock is called. It leaves no file,
// except on a network file system that can't lock a directory (EBADF of NFS).
func Lock(dir string) (unlock func(), err error) { return lock(dir, flock) }

func lock(dir string, try func(*os.File) error) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err = try(f); errors.Is(err, syscall.EBADF) {
		_ = f.Close()
		// It is not removed: those who wait for it would then hold another file than those who come later.
		if f, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return nil, err
		}
		err = try(f)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %q: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}

// lockFile is locked where the directory can't be.
const lockFile = ".lock"

// flock waits for a file's lock.
func flock(f *os.File) (err error) {
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) // #nosec G115 -- a small number
	}
	return err
}

// Replace writes a file that has its whole content as soon as it has its name.
func Replace(path string, content []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content)
	if err := errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
