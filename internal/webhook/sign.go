package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/pawlq/pawl/internal/task"
)

// secretPrefix precedes the secret's bytes in base64.
const secretPrefix = "whsec_"

// Lengths in bytes: of a secret that is generated here, and the bounds of Standard Webhooks for any.
const (
	newSecret = 32
	minSecret = 24
	maxSecret = 64
)

// NewSecret generates a secret, in the form shown to its receiver.
func NewSecret() string {
	b := make([]byte, newSecret)
	_, _ = rand.Read(b) // never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(b)
}

// CheckSecret rejects a malformed secret. The error does not show it.
func CheckSecret(field, s string) error {
	encoded, ok := strings.CutPrefix(s, secretPrefix)
	if !ok || len(encoded) > base64.StdEncoding.EncodedLen(maxSecret) {
		return task.Invalid(field, "it is not %s followed by %d to %d bytes in base64", secretPrefix, minSecret, maxSecret)
	}
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	switch {
	case err != nil:
		return task.Invalid(field, "the part after %s is not padded base64", secretPrefix)
	case len(b) < minSecret || len(b) > maxSecret:
		return task.Invalid(field, "it has %d bytes, %d to %d are allowed", len(b), minSecret, maxSecret)
	}
	return nil
}

// key returns the bytes of a secret that CheckSecret accepted.
func key(secret string) []byte {
	b, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	return b
}

// signatures returns the webhook-signature header: one signature for each secret.
func signatures(secrets []string, id string, at time.Time, body []byte) string {
	all := make([]string, len(secrets))
	for i, s := range secrets {
		mac := hmac.New(sha256.New, key(s))
		_, _ = mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		_, _ = mac.Write(body)
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(all, " ")
}
