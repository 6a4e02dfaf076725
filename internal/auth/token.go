package auth

import (
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Lifetimes of tokens.
const (
	DefaultLife = 90 * 24 * time.Hour
	MaxLife     = 10 * 365 * 24 * time.Hour
	// DefaultOverlap is how long a replaced token stays good unless the request says otherwise, MaxOverlap the longest it can say.
	DefaultOverlap = 24 * time.Hour
	MaxOverlap     = 30 * 24 * time.Hour
)

// AdminName is what the audit log calls the node's own admin token. No other token may have this name.
const AdminName = "admin-token-file"

// maxName bounds the name of a token.
const maxName = 64

// CheckName rejects an invalid name of a token.
func CheckName(name string) error {
	l := task.DefaultLimits()
	l.Name = maxName
	if name == AdminName {
		return task.Invalid("name", "%q is reserved for the token in a server's --admin-token-file", name)
	}
	return task.CheckQueue("name", name, l) // the same characters are allowed
}

// Token is the stored form of a token.
type Token struct {
	Name string `json:"name"` // unique in its namespace
	Rights
	// Certificate is the name of the client certificate whose holder the token is for; "": it is for whoever sends its secret.
	Certificate string     `json:"certificate,omitempty"`
	SQS         bool       `json:"sqs,omitempty"`       // has an access key: see AccessKeyOf
	Hash        Hash       `json:"hash"`                // of the secret, or HashOfCertificate
	OldHash     Hash       `json:"old_hash"`            // of the secret that was replaced
	OldUntil    store.Time `json:"old_until,omitempty"` // until when OldHash is good; 0: there is none
	CreatedBy   string     `json:"created_by,omitempty"`
	CreatedAt   store.Time `json:"created_at"`
	RotatedAt   store.Time `json:"rotated_at,omitempty"`
	ExpiresAt   store.Time `json:"expires_at,omitempty"` // 0: never
	// UsedAt is when it was last used, to the minute; 0: never, or not recorded yet. It is stored separately.
	UsedAt store.Time `json:"used_at,omitempty"`
	// Request is the call that set its secret; nil: the call had no request id.
	Request *Request `json:"request,omitempty"`
}

// Request identifies a call that set a token's secret, to recognize its retries.
type Request struct {
	ID    string     `json:"id"`
	By    string     `json:"by,omitempty"`
	Said  string     `json:"said"`  // a digest of what it asked for
	First store.Time `json:"first"` // when it was first answered
	Asked store.Time `json:"asked"` // when its last retry reached a node, by that node's clock
}

// TokenName identifies a token.
type TokenName struct{ Namespace, Name string }

// ID returns the token's name with its namespace.
func (t *Token) ID() TokenName { return TokenName{t.Namespace, t.Name} }

// same reports whether two are the same token with the same rights.
func (t *Token) same(o *Token) bool {
	return t.Name == o.Name && t.Namespace == o.Namespace && t.Roles == o.Roles && slices.Equal(t.Queues, o.Queues) && t.Hash == o.Hash &&
		t.OldHash == o.OldHash && t.OldUntil == o.OldUntil && t.ExpiresAt == o.ExpiresAt && t.CreatedAt == o.CreatedAt && t.SQS == o.SQS
}

// Access is everything that an Authenticator must know.
type Access struct {
	Required   bool // calls need a token
	Namespaces []string
	Began      map[string]store.Time  // when namespaces were added; not of the default one
	Since      map[string]uint64      // the versions since which they exist
	Quotas     map[string]task.Quotas // of namespaces that have any
	Tokens     []Token
	Ended      []EndedSessions `json:",omitempty"`
}

// Use records that a token was used.
type Use struct {
	Token TokenName
	At    store.Time
}
