package cli

import (
	"cmp"
	"os"
	"os/user"
	"strings"
)

// Actor is the name that the server records for what the command does: by default user@host as the operating system reports them.
func (a *App) Actor() string {
	if a.actor != "" {
		return a.actor
	}
	name := cmp.Or(os.Getenv("USER"), os.Getenv("USERNAME"))
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // "": unknown
	return plainName(name) + "@" + plainName(host)
}

// plainName returns a name as a header can carry it.
func plainName(s string) string {
	const maxActor = 100
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
	return s[:min(len(s), maxActor)]
}
