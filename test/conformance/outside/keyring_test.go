package outside

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/pawlq/pawl/keyring"
)

// vector is something encrypted by the Go SDK. Encryption is deterministic: the other SDKs must produce the same bytes, and decrypt them.
type vector struct {
	Key         string   `json:"key"`
	Secret      []byte   `json:"secret"`
	Place       []string `json:"place"`
	Request     string   `json:"request"`
	ContentType string   `json:"content_type"`
	Data        []byte   `json:"data"`
	Sealed      []byte   `json:"sealed"`
	SealedAs    string   `json:"sealed_as"`
}

// vectors encrypts them again.
func vectors(t *testing.T) (out []vector) {
	for i, v := range []vector{
		{Place: keyring.ForPayload("default", "mail", "mail.welcome"), Request: "request 1", Data: []byte(`{"to":"a@example.com"}`)},
		{Place: keyring.ForPayload("default", "mail", "mail.welcome"), Request: "request 2", Data: []byte(`{"to":"a@example.com"}`)},
		{Place: keyring.ForPayload("t-7", "bilder", "größe"), ContentType: "image/png", Data: []byte{0, 1, 255}},
		{Place: keyring.ForResult("default", "01a21094-ad0e-7001-8d06-13268c8038b3"), ContentType: "application/json",
			Data: []byte(`null`)},
		{Place: keyring.ForCheckpoint("default", "job"), Data: bytes.Repeat([]byte("x"), 300)},
		{Place: keyring.ForOnce("default", "invoice-7"), Data: []byte(`{}`)},
		{Place: keyring.ForPayload("default", "empty", "job"), Data: []byte{}},
	} {
		v.Key, v.Secret = "2026-11", bytes.Repeat([]byte{byte(i + 1)}, 32)
		k, err := keyring.New(keyring.Config{Keys: []keyring.Key{{ID: v.Key, Secret: v.Secret}}})
		if err != nil {
			t.Fatal(err)
		}
		if v.Sealed, v.SealedAs, err = k.Seal(v.Place, v.Request, v.ContentType, v.Data); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// TestKeyringVectors compares keyring.json, which the tests of the other SDKs read, with the Go SDK. PAWL_UPDATE=1 rewrites it.
func TestKeyringVectors(t *testing.T) {
	want, err := json.MarshalIndent(vectors(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if os.Getenv("PAWL_UPDATE") != "" {
		if err := os.WriteFile("keyring.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile("keyring.json"); err != nil || !bytes.Equal(have, want) {
		t.Errorf("keyring.json does not match the Go SDK (%v): existing ciphertexts could no longer be decrypted", err)
	}
}
