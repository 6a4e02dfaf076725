package humanize

import "strings"

// plain are the characters that mean nothing to a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@,"

// ShellWord quotes a text as one word of a shell.
func ShellWord(s string) string {
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Command returns a command line of pawl that is safe to paste into a shell, whatever the arguments and the values of flags are. The verb, and
// flags up to their "=", are written as they are.
func Command(verb string, args []string, flags ...string) string {
	words := []string{"pawl " + verb}
	options := make([]string, len(flags))
	for i, f := range flags {
		options[i] = f
		if name, value, ok := strings.Cut(f, "="); ok {
			options[i] = name + "=" + ShellWord(value)
		}
	}
	quoted := make([]string, len(args))
	dashed := false // an argument looks like a flag
	for i, a := range args {
		quoted[i], dashed = ShellWord(a), dashed || strings.HasPrefix(a, "-")
	}
	if dashed {
		words = append(append(append(words, options...), "--"), quoted...)
	} else {
		words = append(append(words, quoted...), options...)
	}
	return strings.Join(words, " ")
}
