package auth

import (
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Lives of tokens.
const (
	DefaultLife = 90 * 24 * time.Hour
	MaxLife     = 10 * 365 * 24 * time.Hour
	// DefaultOverlap is how long a token is still good that was replaced, MaxOverlap the longest.
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 30 * 24 * time.Hour
)

// AdminName names the token of a node's own file in the record. No other token has it.
const AdminName = "admin-token-file"

// maxName bounds the name of a token.
const maxName = 64

// CheckName refuses what is no name of a token.
func CheckName(name string) error {
	l := task.DefaultLimits()
	l.Name = maxName
	if name == AdminName {
		return task.Invalid("name", "%q is that of the token of a server's --admin-token-file", name)
	}
	return task.CheckQueue("name", name, l) // the same letters
}

// Token is what is kept of a token.
type Token struct {
	Name string `json:"name"` // the only one in its namespace
	Rights
	// Certificate is the name of the client certificate whose holder the token is for; "": it is for who sends its secret.
	Certificate string     `json:"certificate,omitempty"`
	SQS         bool       `json:"sqs,omitempty"`       // it has an access key: see AccessKeyOf
	Hash        Hash       `json:"hash"`                // of the secret, or HashOfCertificate
	OldHash     Hash       `json:"old_hash"`            // of the token that it has replaced
	OldUntil    store.Time `json:"old_until,omitempty"` // until when that is good; 0: there is none
	CreatedBy   string     `json:"created_by,omitempty"`
	CreatedAt   store.Time `json:"created_at"`
	RotatedAt   store.Time `json:"rotated_at,omitempty"`
	ExpiresAt   store.Time `json:"expires_at,omitempty"` // 0: never
	// UsedAt is when it was last used, to the minute; 0: it was not, or not yet noted. It is kept apart from the rest.
	UsedAt store.Time `json:"used_at,omitempty"`
	// Request is the call that gave it its secret; nil: it had no request id.
	Request *Request `json:"request,omitempty"`
}

// Request is a call that gave a token its secret, by which a repeat of it is known.
type Request struct {
	ID    string     `json:"id"`
	By    string     `json:"by,omitempty"`
	Said  string     `json:"said"`  // a digest of what it asked for
	First store.Time `json:"first"` // when it was answered for the first time
	Asked store.Time `json:"asked"` // when the last repeat came to a node, by that node's clock
}

// TokenName names a token.
type TokenName struct{ Namespace, Name string }

// ID is the token's name with its namespace.
func (t *Token) ID() TokenName { return TokenName{t.Namespace, t.Name} }

// same says whether two are the same token with the same rights.
func (t *Token) same(o *Token) bool {
	return t.Name == o.Name && t.Namespace == o.Namespace && t.Roles == o.Roles && slices.Equal(t.Queues, o.Queues) && t.Hash == o.Hash &&
		t.OldHash == o.OldHash && t.OldUntil == o.OldUntil && t.ExpiresAt == o.ExpiresAt && t.CreatedAt == o.CreatedAt && t.SQS == o.SQS
}

// Access is all that a door must know.
type Access struct {
	Required   bool // calls need a token
	Namespaces []string
	Quotas     map[string]task.Quotas // of namespaces that have some
	Tokens     []Token
}

// Use tells that a token was used.
type Use struct {
	Token TokenName
	At    store.Time
}
