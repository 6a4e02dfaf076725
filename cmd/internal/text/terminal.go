package text

import (
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// DumbTerminal reports whether the terminal can't move the cursor.
func DumbTerminal() bool { return os.Getenv("TERM") == "dumb" }
