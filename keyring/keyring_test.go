package keyring_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pawlq/pawl/keyring"
	"github.com/pawlq/pawl/pawltype"
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

// A key has an id of up to 64 letters, digits and . _ -, and 32 bytes. A keyring has 1 to 100 of them, each id once.
func TestKeysAreChecked(t *testing.T) {
	key := func(id string, length int) keyring.Key { return keyring.Key{ID: id, Secret: make([]byte, length)} }
	many := func(n int) (keys []keyring.Key) {
		for i := range n {
			keys = append(keys, key(fmt.Sprint("k", i), 32))
		}
		return keys
	}
	for _, c := range []struct {
		keys  []keyring.Key
		field string // "": they are accepted
	}{
		{many(1), ""}, {many(100), ""}, {nil, "keys"}, {many(101), "keys"}, {[]keyring.Key{key("", 32)}, "keys[0].id"},
		{[]keyring.Key{key(strings.Repeat("a", 64), 32)}, ""}, {[]keyring.Key{key(strings.Repeat("a", 65), 32)}, "keys[0].id"},
		{[]keyring.Key{key("azAZ09._-", 32)}, ""}, {[]keyring.Key{key("a", 31)}, "keys[0].secret"},
		{[]keyring.Key{key("a", 32), key("b", 33)},
			"keys[1].secret"}, {[]keyring.Key{key("a", 32), key("b", 32), key("a", 32)}, "keys[2].id"},
	} {
		k, err := keyring.New(keyring.Config{Keys: c.keys})
		if (err == nil) != (c.field == "") || (k != nil) != (c.field == "") || err != nil &&
			(!errors.Is(err, pawltype.ErrInvalidArgument) ||
				!strings.Contains(err.Error(), c.field+":")) {
			t.Errorf("%d keys, the first %.70q: %v, want a refusal of %q", len(c.keys), append(c.keys, keyring.Key{})[0].ID, err, c.field)
		}
	}
	for _, r := range " /:@[`{}é\x00" { // what comes before and after letters and digits
		if _, err := keyring.New(keyring.Config{Keys: []keyring.Key{key("k"+string(r), 32)}}); err == nil {
			t.Errorf("an id with %q is accepted", r)
		}
	}
}

// What was sealed is opened for its place, by whoever has the key. Each bit of it counts, and so does its length.
func TestEachBitCounts(t *testing.T) {
	at := keyring.ForPayload("ns", "q", "t")
	for _, c := range []struct{ data, contentType string }{{"", ""}, {"x", ""}, {"", "text/plain"},
		{"data", strings.Repeat("c", keyring.MaxContentType)}} {
		k := ring(t)
		sealed, as, err := k.Seal(at, "r", c.contentType, []byte(c.data))
		if err != nil || as != "application/vnd.pawl.encrypted; key=k1" {
			t.Fatalf("Seal = %q, %v", as, err)
		}
		// docs/encryption.md
		if want := "\x01\x02k1"; !strings.HasPrefix(string(sealed), want) || len(sealed) != len(want)+24+1+len(c.contentType)+len(c.data)+
			16 {
			t.Errorf("%d bytes of data of type %q have become %d bytes, %q", len(c.data), c.contentType, len(sealed), sealed)
		}
		if data, contentType, err := k.Open(at, sealed); err != nil || string(data) != c.data || contentType != c.contentType {
			t.Errorf("%q of type %q was opened as %q, %q, %v", c.data, c.contentType, data, contentType, err)
		}
		for i := range sealed {
			for bit := range 8 {
				harmed := bytes.Clone(sealed)
				harmed[i] ^= 1 << bit
				_, _, err := k.Open(at, harmed)
				// the length of the key's id, and the id
				if err == nil || !keyring.IsForged(err) && i != 1 && i != 2 && i != 3 || keyring.IsForged(err) && (i == 2 || i == 3) {
					t.Errorf("with bit %d of byte %d flipped: %v", bit, i, err)
				}
			}
			if _, _, err := k.Open(at, sealed[:i]); !keyring.IsForged(err) {
				t.Errorf("%d of %d bytes: %v", i, len(sealed), err)
			}
		}
		if _, _, err := k.Open(at, append(bytes.Clone(sealed), 0)); !keyring.IsForged(err) {
			t.Errorf("with another byte: %v", err)
		}
		if _, _, err := k.Open(keyring.ForPayload("ns", "qt", ""), sealed); !keyring.IsForged(err) {
			t.Errorf("for another place: %v", err)
		}
	}
	if keyring.IsForged(nil) || keyring.IsForged(errors.New("connection refused")) {
		t.Error("any error means that data is forged")
	}
	if _, _, err := ring(t).Seal(at, "r", strings.Repeat("c", keyring.MaxContentType+1), nil); !errors.Is(err,
		pawltype.ErrInvalidArgument) ||
		!strings.Contains(err.Error(), "content_type") {
		t.Errorf("a content type that is too long: %v", err)
	}
}

// A repeat of a request is recognized by its ciphertext, and equal data of another request is not.
func TestOnlyRepeatsLookAlike(t *testing.T) {
	k, at := ring(t), keyring.ForResult("ns", "task")
	seal := func(at keyring.Place, request, contentType, data string) string {
		sealed, _, err := k.Seal(at, request, contentType, []byte(data))
		if err != nil {
			t.Fatal(err)
		}
		return string(sealed)
	}
	seen := map[string]int{}
	for range 2 {
		for i, sealed := range []string{seal(at, "r", "", "data"), seal(at, "r2", "", "data"), seal(at, "r", "d", "ata"),
			seal(keyring.ForResult("ns", "tas"), "kr", "", "data"), seal(keyring.ForOnce("ns", "task"), "r", "", "data")} {
			if first, known := seen[sealed]; known && first != i {
				t.Errorf("%d and %d have the same ciphertext", first, i)
			}
			seen[sealed] = i
		}
	}
	if len(seen) != 5 {
		t.Errorf("repeats have other ciphertexts: %d in all, want 5", len(seen))
	}
}

// While keys are being replaced, the first encrypts and each decrypts. Without its key, data is not forged: another keyring may have it.
func TestKeysAreReplaced(t *testing.T) {
	old, next := keyring.Key{ID: "old", Secret: bytes.Repeat([]byte{1}, 32)}, keyring.Key{ID: "next", Secret: bytes.Repeat([]byte{2}, 32)}
	of := func(keys ...keyring.Key) *keyring.Keyring {
		k, err := keyring.New(keyring.Config{Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	at := keyring.ForCheckpoint("ns", "t")
	for _, c := range []struct {
		seals, opens *keyring.Keyring
		key          string
		ok           bool
	}{
		{of(old), of(old, next), "old", true}, {of(old, next), of(next, old), "old", true}, {of(next, old), of(old, next), "next", true},
		{of(next), of(old), "next", false},
	} {
		sealed, as, err := c.seals.Seal(at, "r", "", []byte("data"))
		if err != nil {
			t.Fatal(err)
		}
		if id, encrypted := keyring.EncryptedWith(as); id != c.key || !encrypted {
			t.Errorf("%q says key %q, %t, want %q", as, id, encrypted, c.key)
		}
		data, _, err := c.opens.Open(at, sealed)
		if (err == nil) != c.ok || c.ok && string(data) != "data" || !c.ok && (keyring.IsForged(err) ||
			!strings.Contains(err.Error(), "next")) {
			t.Errorf("sealed with %s: %q, %v", c.key, data, err)
		}
	}
	for contentType, want := range map[string]string{"": " false", "text/plain": " false", "application/vnd.pawl.encrypted": " true",
		"application/vnd.pawl.encrypted; key=a": "a true", "application/vnd.pawl.encryption": " false",
		"application/vnd.pawl.encrypted+json": " false"} {
		if id, encrypted := keyring.EncryptedWith(contentType); encrypted && fmt.Sprint(id, " true") != want ||
			!encrypted && want != " false" {
			t.Errorf("EncryptedWith(%q) = %q, %t, want %s", contentType, id, encrypted, want)
		}
	}
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
