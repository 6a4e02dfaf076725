// Package contexts stores connection settings in a file of the user: a context is a named server address with
// everything needed to connect to it. It knows no flags and makes no connections.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Context says how to reach a server, and as whom. Paths are absolute. It holds no secret, only the path of the file that does.
type Context struct {
	Server      string `yaml:"server" json:"server"`
	TLSCA       string `yaml:"tls_ca,omitempty" json:"tls_ca,omitempty"`
	ClientCert  string `yaml:"client_cert,omitempty" json:"client_cert,omitempty"`
	ClientKey   string `yaml:"client_key,omitempty" json:"client_key,omitempty"`
	Plaintext   bool   `yaml:"plaintext,omitempty" json:"plaintext,omitempty"`
	TokenFile   string `yaml:"token_file,omitempty" json:"token_file,omitempty"`
	Namespace   string `yaml:"namespace,omitempty" json:"namespace,omitempty"`
	PayloadKeys string `yaml:"payload_keys,omitempty" json:"payload_keys,omitempty"`
}

// Contexts are a user's contexts.
type Contexts struct {
	Current  string             `yaml:"current,omitempty"` // the name of the current one; "": none
	Contexts map[string]Context `yaml:"contexts"`
}

const (
	maxFile     = 1 << 20
	maxContexts = 1000
	maxName     = 64
)

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// CheckName rejects names that would cause trouble in a shell or a file.
func CheckName(s string) error {
	if len(s) > maxName || !name.MatchString(s) {
		return fmt.Errorf("context name %q: want letters, digits and . _ -, a letter or digit first, at most %d of them", s, maxName)
	}
	return nil
}

// Path returns the path of the file: pawl/contexts.yaml in the user's configuration directory.
func Path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "pawl", "contexts.yaml"), nil
}

// Change reads the file, applies change and replaces the file, unless change fails. No other Change runs meanwhile, in whichever process.
func Change(path string, change func(all *Contexts) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600) // the file itself is replaced, so a lock on it would be lost
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return &fs.PathError{Op: "lock", Path: lock.Name(), Err: err}
	}
	all, err := Load(path)
	if err != nil {
		return err
	}
	if err := change(all); err != nil {
		return err
	}
	return all.save(path)
}

// Load reads the file. If there is no file, there are no contexts.
func Load(path string) (*Contexts, error) {
	all := &Contexts{Contexts: map[string]Context{}}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("file %q: %d bytes, at most %d", path, info.Size(), maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	strict := yaml.NewDecoder(bytes.NewReader(text))
	strict.KnownFields(true)
	if err := strict.Decode(all); err != nil {
		return nil, fmt.Errorf("file %q: %w", path, err)
	}
	for n, c := range all.Contexts {
		if c.Server == "" {
			return nil, fmt.Errorf("file %q: context %q has no server", path, n)
		}
	}
	return all, nil
}

// save replaces the file, readable by its owner only. A concurrent reader sees the old file or the new one.
func (all *Contexts) save(path string) error {
	if len(all.Contexts) > maxContexts {
		return fmt.Errorf("%d contexts, at most %d", len(all.Contexts), maxContexts)
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".contexts-") // its mode is 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Names returns the names of the contexts, sorted.
func (all *Contexts) Names() []string { return slices.Sorted(maps.Keys(all.Contexts)) }
