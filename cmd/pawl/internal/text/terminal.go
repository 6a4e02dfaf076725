package text

import (
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether a person is at the other end.
func IsTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// DumbTerminal reports whether the terminal has no way to move the cursor.
func DumbTerminal() bool { return os.Getenv("TERM") == "dumb" }
