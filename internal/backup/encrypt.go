package backup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// An encrypted backup is a file in the format of age, encrypted with a passphrase. Without the key, nobody can read it, change it,
// or write another one that a reader with the key accepts.
const (
	encryptedMagic = "age-encryption.org/"

	// minKey and maxKey bound a key in characters.
	minKey = 32
	maxKey = 1024
	// maxWork is the greatest work factor that is read. It is that of the program age.
	maxWork = 18
)

// keyWork is the logarithm of scrypt's work factor: 32 MiB and a tenth of a second. A key of 32 random characters can't be guessed, so it
// need not take the 256 MiB of the program age. Tests lower it.
var keyWork = 15

var (
	// ErrEncrypted: a backup is encrypted, and no key was given.
	ErrEncrypted = errors.New("it is encrypted: give its key with --key-file")
	// ErrPlain: a key was given, and the backup is not encrypted, so anybody may have written it.
	ErrPlain = errors.New("it is not encrypted, so the key does not prove who wrote it: leave out --key-file if you trust it")
	// ErrKey: a backup was encrypted with another key.
	ErrKey = errors.New("it is encrypted with another key")
)

// CheckKey rejects a text that can't be a key: want 32 to 1,024 characters without spaces, which should be random.
func CheckKey(key string) error {
	if n := len(key); n < minKey || n > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("want a key of %d to %d random characters, ASCII without spaces, found %d bytes", minKey, maxKey, n)
	}
	return nil
}

// Encrypt returns a writer that encrypts what is written to it, and writes it to w. Closing it completes the file; it does not close w.
func Encrypt(w io.Writer, key string) (io.WriteCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	to, err := age.NewScryptRecipient(key)
	if err != nil {
		return nil, err
	}
	to.SetWorkFactor(keyWork)
	return age.Encrypt(w, to)
}

// opened returns the bytes of a backup that may be encrypted.
func opened(r io.Reader, key string) (io.Reader, error) {
	whole := bufio.NewReader(r)
	begin, err := whole.Peek(len(encryptedMagic))
	switch encrypted := string(begin) == encryptedMagic; {
	case err != nil && !cut(err):
		return nil, err
	case !encrypted && key != "":
		return nil, ErrPlain
	case !encrypted:
		return whole, nil
	case key == "":
		return nil, ErrEncrypted
	}
	from, err := age.NewScryptIdentity(key)
	if err != nil {
		return nil, err
	}
	from.SetMaxWorkFactor(maxWork)
	source := &sourceReader{r: whole}
	plain, err := age.Decrypt(source, from)
	if _, other := errors.AsType[*age.NoIdentityMatchError](err); other {
		return nil, ErrKey
	}
	if err != nil {
		return nil, source.explain(err)
	}
	return decrypted{plain, source}, nil
}

// sourceReader remembers the error of its source, so that damage can be told from an error of the disk.
type sourceReader struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (s *sourceReader) Read(p []byte) (n int, err error) {
	n, err = s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// explain returns the source's error if there was one. Otherwise err means that the file is not what was written.
func (s *sourceReader) explain(err error) error {
	switch {
	case s.err != nil:
		return s.err
	case cut(err):
		return fmt.Errorf("%w: it is truncated", ErrDamaged)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

type decrypted struct {
	plain  io.Reader
	source *sourceReader
}

// Read implements io.Reader.
func (d decrypted) Read(p []byte) (int, error) {
	n, err := d.plain.Read(p)
	if err != nil && err != io.EOF {
		err = d.source.explain(err)
	}
	return n, err
}
