package pawl

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
)

// PayloadKey is a secret with which payloads and results are encrypted before they leave the program.
type PayloadKey struct {
	ID     string // letters, digits and . _ -, up to 64: everybody sees it
	Secret []byte // 32 random bytes
}

// KeyringConfig says with what is encrypted and decrypted.
type KeyringConfig struct {
	// Keys are at least one. The first encrypts; all decrypt, so that a key can be replaced: put the new one behind the others
	// everywhere, then first everywhere, then take the old one out when nothing is encrypted with it any more.
	Keys []PayloadKey
	// AcceptFrom are queues from which operators may have moved tasks. A payload is encrypted for its queue: in another it is taken for
	// forged, unless it is from one of these.
	AcceptFrom []string
	// OnlyEncrypted poisons tasks whose payloads are not encrypted. Without it a worker takes them, as it must while producers learn to.
	OnlyEncrypted bool
}

// Keyring encrypts payloads, results and checkpoints with AES-256-GCM, for a client (WithKeyring). It never changes; any goroutine may use it.
type Keyring struct {
	keys       []*payloadKey
	acceptFrom []string
	only       bool
}

// payloadKey is a key with what is derived from it.
type payloadKey struct {
	id     string
	secret []byte // of the keys of single messages
	salts  []byte
}

const (
	keyLen   = 32
	maxKeyID = 64
	// saltLen is that of the salt from which the key of each message is made: no two messages have the same.
	saltLen = 24
	// sealVersion begins what is encrypted.
	sealVersion = 1
	// sealedType begins the content type of what is encrypted. Behind it stands the id of the key: "; key=2026-11".
	sealedType = "application/vnd.pawl.encrypted"
	sealedKey  = "; key="
	// maxInnerType is that of a content type, whose length is one byte.
	maxInnerType = 255
	// maxKeys bounds a keyring.
	maxKeys = 100
)

// NewKeyring checks the keys.
func NewKeyring(cfg KeyringConfig) (*Keyring, error) {
	if len(cfg.Keys) == 0 || len(cfg.Keys) > maxKeys {
		return nil, invalid("keys", "are %d, want 1 to %d", len(cfg.Keys), maxKeys)
	}
	k := &Keyring{acceptFrom: slices.Clone(cfg.AcceptFrom), only: cfg.OnlyEncrypted}
	for i, key := range cfg.Keys {
		field := fmt.Sprintf("keys[%d]", i)
		switch {
		case key.ID == "" || len(key.ID) > maxKeyID || strings.ContainsFunc(key.ID, notOfKeyID):
			return nil, invalid(field+".id", "%q is not letters, digits and . _ -, 1 to %d", cutText(key.ID, maxKeyID), maxKeyID)
		case len(key.Secret) != keyLen:
			return nil, invalid(field+".secret", "has %d bytes, want %d", len(key.Secret), keyLen)
		case k.key(key.ID) != nil:
			return nil, invalid(field+".id", "%q is given twice", key.ID)
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

// EncryptedWith tells by a content type whether something is encrypted, and with which key.
func EncryptedWith(contentType string) (keyID string, encrypted bool) {
	rest, ok := strings.CutPrefix(contentType, sealedType)
	if !ok {
		return "", false
	}
	id, ok := strings.CutPrefix(rest, sealedKey)
	return id, ok || rest == ""
}

// sealedFor is where something belongs that is encrypted: it can't be opened anywhere else.
type sealedFor []string

func forPayload(ns, queue, typ string) sealedFor { return sealedFor{"payload", ns, queue, typ} }
func forResult(ns, task string) sealedFor        { return sealedFor{"result", ns, task} }
func forCheckpoint(ns, typ string) sealedFor     { return sealedFor{"checkpoint", ns, typ} }
func forOnce(ns, key string) sealedFor           { return sealedFor{"once", ns, key} }

// bytes are unlike those of any other place.
func (p sealedFor) bytes() []byte {
	b := []byte{sealVersion}
	for _, part := range p {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	return b
}

// seal encrypts data for a place. The same of the same request comes out the same, so that the broker knows a repeat; nobody sees whether two
// requests have the same data.
//
// Each message has a key of its own, made of the secret and a salt: so there is no nonce that could be used twice, however many messages
// there are. The salt is a keyed hash of all that goes in.
func (k *Keyring) seal(at sealedFor, request, contentType string, data []byte) (sealed []byte, sealedAs string, err error) {
	key := k.keys[0]
	if len(contentType) > maxInnerType {
		return nil, "", invalid("content_type", "has %d bytes, at most %d can be encrypted", len(contentType), maxInnerType)
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

// aead is the cipher of one message.
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

// sealError is why something could not be decrypted. It is forged if nobody who has the keys encrypted it for its place; else another
// keyring may have the key.
type sealError struct {
	forged bool
	text   string
}

// Error implements error.
func (e *sealError) Error() string { return e.text }

func forged(format string, args ...any) error {
	return &sealError{forged: true, text: fmt.Sprintf(format, args...)}
}

func isForged(err error) bool {
	e, ok := errors.AsType[*sealError](err)
	return ok && e.forged
}

// open is the inverse of seal.
//
// Errors: *sealError.
func (k *Keyring) open(at sealedFor, sealed []byte) (data []byte, contentType string, err error) {
	id, rest, ok := keyOf(sealed)
	if !ok {
		return nil, "", forged("it has not the form of what is encrypted")
	}
	key := k.key(id)
	if key == nil {
		return nil, "", &sealError{text: fmt.Sprintf("it is encrypted with key %q, which the keyring lacks", id)}
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

// keyOf reads the id of the key, and what follows: the salt and the ciphertext.
func keyOf(sealed []byte) (id string, rest []byte, ok bool) {
	if len(sealed) < 2 || sealed[0] != sealVersion || len(sealed) < 2+int(sealed[1])+saltLen {
		return "", nil, false
	}
	n := 2 + int(sealed[1])
	return string(sealed[2:n]), sealed[n:], true
}
