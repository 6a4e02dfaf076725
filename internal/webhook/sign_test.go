package webhook

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	verifier "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// An independent implementation accepts signatures made here, with each of the secrets, and rejects them after any change.
func TestSignatures(t *testing.T) {
	old, now := NewSecret(), NewSecret()
	if old == now || len(old) != len("whsec_")+base64.StdEncoding.EncodedLen(32) {
		t.Fatalf("secrets have %d bytes, equal: %t", len(old), old == now)
	}
	at, body := time.Now(), []byte(`{"type":"task.dead"}`)
	header := http.Header{}
	header.Set(headerID, "msg_1")
	header.Set(headerTimestamp, strconv.FormatInt(at.Unix(), 10))
	header.Set(headerSignature, signatures([]string{now, old}, "msg_1", at, body))
	verify := func(secret string, body []byte, header http.Header) error {
		hook, err := verifier.NewWebhook(secret)
		if err != nil {
			t.Fatal(err)
		}
		return hook.Verify(body, header)
	}
	for _, secret := range []string{old, now} {
		if err := verify(secret, body, header); err != nil {
			t.Errorf("signature does not verify with one of its secrets: %v", err)
		}
	}
	if verify(NewSecret(), body, header) == nil {
		t.Error("signature verified with another secret")
	}
	if verify(now, []byte(`{"type":"task.Dead"}`), header) == nil {
		t.Error("signature verified with another body")
	}
	for _, name := range []string{headerID, headerTimestamp} {
		changed := header.Clone()
		changed.Set(name, changed.Get(name)+"0")
		if verify(now, body, changed) == nil {
			t.Errorf("signature verified with another %s", name)
		}
	}
}

func TestCheckSecret(t *testing.T) {
	b64 := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for secret, ok := range map[string]bool{NewSecret(): true, "whsec_" + b64(24): true, "whsec_" + b64(64): true,
		"whsec_" + b64(23): false, "whsec_" + b64(65): false, "": false, "whsec_": false, b64(32): false,
		"whsec_" + strings.TrimRight(b64(32), "="): false, "whsec_" + strings.Repeat("!", 44): false, "whsk_" + b64(32): false,
		"whsec_" + strings.Repeat("A", 10_000): false} {
		err := CheckSecret("secret", secret)
		if (err == nil) != ok {
			t.Errorf("CheckSecret of a secret of %d bytes: %v", len(secret), err)
		}
		if err != nil && len(secret) > 10 && strings.Contains(err.Error(), secret[6:]) {
			t.Errorf("CheckSecret's error reveals the secret: %v", err)
		}
	}
}
