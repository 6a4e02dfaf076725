package cli

import (
	"cmp"
	"os"
	"os/user"
	"strings"
)

// Actor is the name under which the server notes what is done: the operating system's for the user and the host, if none is given.
func (a *App) Actor() string {
	if a.actor != "" {
		return a.actor
	}
	name := cmp.Or(os.Getenv("USER"), os.Getenv("USERNAME"))
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, _ := os.Hostname() // "": it has none
	return plainName(name) + "@" + plainName(host)
}

// plainName is a name as a header can carry it.
func plainName(s string) string {
	const most = 100
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
	return s[:min(len(s), most)]
}
