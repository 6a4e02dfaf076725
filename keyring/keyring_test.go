package keyring_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/pawlq/pawl/keyring"
)

// FuzzKeyring opens arbitrary bytes. They are refused, and nothing panics.
func FuzzKeyring(f *testing.F) {
	f.Add([]byte("\x01\x02k1"), "default")
	f.Add(append([]byte("\x01\x02k1"), make([]byte, 60)...), "")
	f.Fuzz(func(t *testing.T, payload []byte, queue string) {
		k := ring(t)
		if data, _, err := k.Open(keyring.ForPayload("ns", queue, "t"), payload); err == nil {
			t.Errorf("%x was decrypted to %q", payload, data)
		}
	})
}

var benchPayload = []byte(strings.Repeat("x", 1024))

func BenchmarkKeyring(b *testing.B) {
	k := ring(b)
	b.SetBytes(int64(len(benchPayload)))
	for b.Loop() {
		at := keyring.ForPayload("ns", "q", "t")
		sealed, _, err := k.Seal(at, "r", "", benchPayload)
		if err == nil {
			_, _, err = k.Open(at, sealed)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// ring returns a keyring with one key.
func ring(t testing.TB) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(keyring.Config{Keys: []keyring.Key{{ID: "k1", Secret: bytes.Repeat([]byte{1}, 32)}}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}
