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
	ExpiresAt   time.Time    `json:"expires_at,omitzero"`
	RotatedAt   time.Time    `json:"rotated_at,omitzero"`
	OldUntil    time.Time    `json:"old_until,omitzero"`
	UsedAt      time.Time    `json:"used_at,omitzero"`
	Certificate string       `json:"certificate,omitempty"`
	AccessKeyID string       `json:"access_key_id,omitempty"`
	Secret      string       `json:"secret,omitempty"`
	AccessKey   string       `json:"secret_access_key,omitempty"`
	Unconfirmed []string     `json:"unconfirmed_nodes,omitempty"`
}

// NewToken converts a token.
func NewToken(t *admin.Token) Token {
	return Token{Name: t.Name, Namespace: t.Namespace, Roles: t.Roles, Queues: t.Queues, CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt,
		ExpiresAt: t.ExpiresAt, RotatedAt: t.RotatedAt, OldUntil: t.OldUntil, UsedAt: t.UsedAt, Certificate: t.Certificate, AccessKeyID: t.AccessKeyID}
}
