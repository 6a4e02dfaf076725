package view

import (
	"time"

	"github.com/pawlq/pawl/admin"
)

// Token is a token for programs.
type Token struct {
	Name        string       `json:"name"`
	Namespace   string       `json:"namespace"`
	Roles       []admin.Role `json:"roles"`
	Queues      []string     `json:"queues,omitempty"`
	CreatedBy   string       `json:"created_by,omitempty"`
	CreatedAt   time.Time    `json:"created_at"`
	ExpiresAt   *time.Time   `json:"expires_at,omitempty"`
	RotatedAt   *time.Time   `json:"rotated_at,omitempty"`
	OldUntil    *time.Time   `json:"old_until,omitempty"`
	UsedAt      *time.Time   `json:"used_at,omitempty"`
	Certificate string       `json:"certificate,omitempty"`
	AccessKeyID string       `json:"access_key_id,omitempty"`
	Secret      string       `json:"secret,omitempty"`
	AccessKey   string       `json:"secret_access_key,omitempty"`
	Unconfirmed []string     `json:"unconfirmed_nodes,omitempty"`
}

// NewToken converts a token.
func NewToken(t *admin.Token) Token {
	return Token{Name: t.Name, Namespace: t.Namespace, Roles: t.Roles, Queues: t.Queues, CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt,
		ExpiresAt: OrNil(t.ExpiresAt), RotatedAt: OrNil(t.RotatedAt), OldUntil: OrNil(t.OldUntil), UsedAt: OrNil(t.UsedAt), Certificate: t.Certificate, AccessKeyID: t.AccessKeyID}
}

// OrNil is nil for the zero time, which JSON then leaves out.
func OrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
