package backup

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

const (
	key      = "correct-horse-battery-staple-and-more"
	otherKey = "correct-horse-battery-staple-and-less"
)

func init() { keyWork = 4 }

// encrypted returns data encrypted with key.
func encrypted(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := Encrypt(&b, key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An encrypted backup is read with its key alone, and a reader with a key accepts nothing else.
func TestEncrypted(t *testing.T) {
	plain := written(t)
	secret := encrypted(t, plain)
	if bytes.Contains(secret, []byte("zerozero")) {
		t.Error("the encrypted backup contains what it should hide")
	}
	_, parts, got, err := readWith(iotest.HalfReader(bytes.NewReader(secret)), key)
	if err != nil || len(parts) != len(states) || !reflect.DeepEqual(got[2], states[2]) {
		t.Errorf("reading it returned %d parts, %v", len(parts), err)
	}
	broken := errors.New("the disk is gone")
	for what, c := range map[string]struct {
		r    io.Reader
		key  string
		want error
	}{
		"without its key":       {bytes.NewReader(secret), "", ErrEncrypted},
		"with another key":      {bytes.NewReader(secret), otherKey, ErrKey},
		"plain, with a key":     {bytes.NewReader(plain), key, ErrPlain},
		"empty, with a key":     {strings.NewReader(""), key, ErrPlain},
		"empty":                 {strings.NewReader(""), "", ErrNotBackup},
		"not a backup":          {bytes.NewReader(encrypted(t, []byte("something else"))), key, ErrNotBackup},
		"for a recipient":       {strings.NewReader("age-encryption.org/v1\n-> X25519 AAAA\nAAAA\n--- AAAA\n"), key, ErrDamaged},
		"too much work":         {bytes.NewReader(bytes.Replace(secret, []byte(" 4\n"), []byte(" 25\n"), 1)), key, ErrDamaged},
		"no work":               {bytes.NewReader(bytes.Replace(secret, []byte(" 4\n"), []byte(" 0\n"), 1)), key, ErrDamaged},
		"a disk that fails":     {iotest.ErrReader(broken), key, broken},
		"one that fails later":  {io.MultiReader(bytes.NewReader(secret[:len(secret)/2]), iotest.ErrReader(broken)), key, broken},
		"one that fails at end": {io.MultiReader(bytes.NewReader(secret), iotest.ErrReader(broken)), key, broken},
	} {
		if _, _, _, err := readWith(c.r, c.key); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// Nothing that was changed or cut is read, wherever it is.
func TestEncryptedDamage(t *testing.T) {
	whole := encrypted(t, written(t))
	for at := 250; at < len(whole); at += 10_007 {
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1
		if _, _, _, err := readWith(bytes.NewReader(flipped), key); !errors.Is(err, ErrDamaged) {
			t.Errorf("bit flipped in byte %d of %d: %v", at, len(whole), err)
		}
		if _, _, _, err := readWith(bytes.NewReader(whole[:at]), key); !errors.Is(err, ErrDamaged) {
			t.Errorf("cut after %d of %d bytes: %v", at, len(whole), err)
		}
	}
	for _, b := range [][]byte{append(bytes.Clone(whole), 0), append(bytes.Clone(whole), whole...), whole[:len(whole)-1]} {
		if _, _, _, err := readWith(bytes.NewReader(b), key); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes instead of %d: %v", len(b), len(whole), err)
		}
	}
}

// A writer reports the error of its file, also the last one.
func TestEncryptToAFullDisk(t *testing.T) {
	full := errors.New("no space left")
	for _, most := range []int{0, 100, 70_000} {
		w, err := Encrypt(&limitedWriter{most: most, err: full}, key)
		if err == nil {
			_, err = w.Write(written(t))
			if err == nil {
				err = w.Close()
			}
		}
		if !errors.Is(err, full) {
			t.Errorf("a disk of %d bytes: %v, want %v", most, err, full)
		}
	}
}

type limitedWriter struct {
	most int
	err  error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.most -= len(p); w.most < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestCheckKey(t *testing.T) {
	for _, ok := range []string{key, strings.Repeat("k", minKey), strings.Repeat("k", maxKey)} {
		if err := CheckKey(ok); err != nil {
			t.Errorf("a key of %d: %v", len(ok), err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("k", minKey-1), strings.Repeat("k", maxKey+1), key + " ", key + "\n" + key,
		key + "é", key + "\x7f"} {
		if err := CheckKey(bad); err == nil || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the key %q: %v", bad, err)
		}
		if _, err := Encrypt(io.Discard, bad); err == nil {
			t.Errorf("encrypted with the key %q", bad)
		}
	}
}
