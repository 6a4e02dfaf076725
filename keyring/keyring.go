// Package keyring encrypts the contents of tasks, with keys that the broker never sees. docs/encryption.md has the rules and the format.
//
// It knows neither clients nor tasks: a client that is given a Keyring uses it automatically.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pawlq/pawl/internal/client/convert"
)

// Key is a secret that encrypts payloads and results before they leave the program.
type Key struct {
	ID     string // letters, digits and . _ -, up to 64; not secret
	Secret []byte // 32 random bytes
}

// Config configures a Keyring.
type Config struct {
	// Keys has at least one key. The first encrypts; all decrypt, so that a key can be replaced: add the new one at the
	// end everywhere, then move it to the front everywhere, and remove the old one when nothing is encrypted with it
	// any more.
	Keys []Key
	// AcceptFrom are queues from which operators may have moved tasks. A payload is encrypted for its queue: in another
	// one it counts as forged, unless it comes from one of these.
	AcceptFrom []string
	// OnlyEncrypted refuses what is not encrypted: a task whose payload or checkpoint is plain is poisoned, a plain result is removed from
	// the answer that holds it, and the plain result of a once key is an error. Without it a client accepts them, as it must until all
	// clients encrypt.
	OnlyEncrypted bool
}

// Keyring encrypts payloads, results and checkpoints with AES-256-GCM, for a client (pawl.DialOptions). It is immutable
// and safe for concurrent use.
type Keyring struct {
	keys       []*payloadKey
	acceptFrom []string
	only       bool
}

// payloadKey is a key and the secrets derived from it.
type payloadKey struct {
	id     string
	secret []byte // for the keys of single messages
	salts  []byte
}

const (
	keyLen   = 32
	maxKeyID = 64
	// saltLen is the length of the salt from which the key of each message is derived: no two messages share one.
	saltLen = 24
	// sealVersion is the first byte of sealed data.
	sealVersion = 1
	// sealedType begins the content type of sealed data. The id of the key follows: "; key=2026-11".
	sealedType = "application/vnd.pawl.encrypted"
	sealedKey  = "; key="
	// MaxContentType is the longest content type that can be encrypted, in bytes: its length is stored in one byte.
	MaxContentType = 255
	// maxKeys bounds the keys of a keyring.
	maxKeys = 100
)

// New returns a keyring with cfg's keys, which it checks.
func New(cfg Config) (*Keyring, error) {
	if len(cfg.Keys) == 0 || len(cfg.Keys) > maxKeys {
		return nil, convert.Invalid("keys", "%d keys, want 1 to %d", len(cfg.Keys), maxKeys)
	}
	k := &Keyring{acceptFrom: slices.Clone(cfg.AcceptFrom), only: cfg.OnlyEncrypted}
	for i, key := range cfg.Keys {
		field := fmt.Sprintf("keys[%d]", i)
		switch {
		case key.ID == "" || len(key.ID) > maxKeyID || strings.ContainsFunc(key.ID, notOfKeyID):
			return nil, convert.Invalid(field+".id", "%q is not letters, digits and . _ -, 1 to %d", convert.CutText(key.ID, maxKeyID),
				maxKeyID)
		case len(key.Secret) != keyLen:
			return nil, convert.Invalid(field+".secret", "has %d bytes, want %d", len(key.Secret), keyLen)
		case k.key(key.ID) != nil:
			return nil, convert.Invalid(field+".id", "%q is given twice", key.ID)
		}
		salts, err := hkdf.Key(sha256.New, key.Secret, nil, "pawl salts v1", keyLen)
		if err != nil {
			return nil, fmt.Errorf("pawl: key %q: %w", key.ID, err)
		}
		k.keys = append(k.keys, &payloadKey{id: key.ID, secret: slices.Clone(key.Secret), salts: salts})
	}
	return k, nil
}

func notOfKeyID(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-", r))
}

func (k *Keyring) key(id string) *payloadKey {
	for _, key := range k.keys {
		if key.id == id {
			return key
		}
	}
	return nil
}

// EncryptedWith reports whether a content type is that of encrypted data, and with which key.
func EncryptedWith(contentType string) (keyID string, encrypted bool) {
	rest, ok := strings.CutPrefix(contentType, sealedType)
	if !ok {
		return "", false
	}
	id, ok := strings.CutPrefix(rest, sealedKey)
	return id, ok || rest == ""
}

// Place is what encrypted data belongs to: it can't be opened for anything else.
type Place []string

// ForPayload returns the place of a task's payload.
func ForPayload(ns, queue, typ string) Place { return Place{"payload", ns, queue, typ} }

// ForResult returns the place of a task's result.
func ForResult(ns, task string) Place { return Place{"result", ns, task} }

// ForCheckpoint returns the place of the checkpoint of a task of type typ.
func ForCheckpoint(ns, typ string) Place { return Place{"checkpoint", ns, typ} }

// ForOnce returns the place of the result of a once key.
func ForOnce(ns, key string) Place { return Place{"once", ns, key} }

// bytes returns an encoding of p that no other place has.
func (p Place) bytes() []byte {
	b := []byte{sealVersion}
	for _, part := range p {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return b
}

// Seal encrypts data for a place. Equal data of the same request has equal ciphertext, so that the broker recognizes a
// repeat; nobody can see whether two requests have the same data.
//
// Each message has its own key, derived from the secret and a salt, so no nonce can be used twice, however many
// messages there are. The salt is a keyed hash of all inputs.
func (k *Keyring) Seal(at Place, request, contentType string, data []byte) (sealed []byte, sealedAs string, err error) {
	key := k.keys[0]
	if len(contentType) > MaxContentType {
		return nil, "", convert.Invalid("content_type", "has %d bytes, at most %d can be encrypted", len(contentType), MaxContentType)
	}
	plain := make([]byte, 0, 1+len(contentType)+len(data))
	plain = append(append(append(plain, byte(len(contentType))), contentType...), data...)
	about := at.bytes()
	mac := hmac.New(sha256.New, key.salts)
	for _, part := range [][]byte{about, []byte(request), plain} {
		_, _ = mac.Write(binary.AppendUvarint(nil, uint64(len(part))))
		_, _ = mac.Write(part)
	}
	salt := mac.Sum(nil)[:saltLen]
	aead, err := key.aead(salt)
	if err != nil {
		return nil, "", err
	}
	sealed = make([]byte, 0, 2+len(key.id)+saltLen+len(plain)+aead.Overhead())
	sealed = append(append(append(sealed, sealVersion, byte(len(key.id))), key.id...), salt...)
	return aead.Seal(sealed, make([]byte, aead.NonceSize()), plain, about), sealedType + sealedKey + key.id, nil
}

// aead returns the cipher of one message.
func (k *payloadKey) aead(salt []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, k.secret, salt, "pawl message v1", keyLen)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Error is returned for data that could not be decrypted.
type Error struct {
	Forged  bool // no holder of the keys encrypted it for its place; if false, another keyring may have the key
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

func forged(format string, args ...any) error {
	return &Error{Forged: true, Message: fmt.Sprintf(format, args...)}
}

// OnlyEncrypted reports whether unencrypted data is refused.
func (k *Keyring) OnlyEncrypted() bool { return k.only }

// AcceptFrom returns the queues from which tasks may have been moved.
func (k *Keyring) AcceptFrom() []string { return k.acceptFrom }

// IsForged reports whether err is an *Error for forged data.
func IsForged(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Forged
}

// Open is the inverse of Seal.
//
// Errors: *Error.
func (k *Keyring) Open(at Place, sealed []byte) (data []byte, contentType string, err error) {
	id, rest, ok := keyOf(sealed)
	if !ok {
		return nil, "", forged("it does not have the format of encrypted data")
	}
	key := k.key(id)
	if key == nil {
		return nil, "", &Error{Message: fmt.Sprintf("it is encrypted with key %q, which the keyring lacks", id)}
	}
	aead, err := key.aead(rest[:saltLen])
	if err != nil {
		return nil, "", err
	}
	plain, err := aead.Open(nil, make([]byte, aead.NonceSize()), rest[saltLen:], at.bytes())
	if err != nil || len(plain) == 0 || len(plain) < 1+int(plain[0]) {
		return nil, "", forged("it is not what was encrypted for %q with key %q", []string(at), id)
	}
	n := 1 + int(plain[0])
	return plain[n:], string(plain[1:n]), nil
}

// keyOf returns the id of the key, and what follows it: the salt and the ciphertext.
func keyOf(sealed []byte) (id string, rest []byte, ok bool) {
	if len(sealed) < 2 || sealed[0] != sealVersion || len(sealed) < 2+int(sealed[1])+saltLen {
		return "", nil, false
	}
	n := 2 + int(sealed[1])
	return string(sealed[2:n]), sealed[n:], true
}
