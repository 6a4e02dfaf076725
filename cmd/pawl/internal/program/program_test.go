package program

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl"
)

func TestCommandsAreChecked(t *testing.T) {
	for command, good := range map[string]bool{"true": true, "cat -": true, "/bin/sh -c x": true, "if true; then exit 0; fi": true,
		"exit 1": true, "X=1 nosuch": true, "$HANDLER": true, "'a b'": true, "/nosuch": false, "nosuch-command --now": false,
		"./program.go": false, "/tmp": false} {
		if err := (&program{command: command}).check(); (err == nil) != good {
			t.Errorf("%q: %v, want an error: %t", command, err, !good)
		}
	}
}

func TestLimitedAndLastBytes(t *testing.T) {
	l := &limited{limit: 4}
	n, err := io.Copy(l, strings.NewReader("abcdef"))
	if n != 6 || err != nil || string(l.data) != "abcd" || !l.over {
		t.Errorf("limited read %d, %v, and kept %q, over %t", n, err, l.data, l.over)
	}
	last := &lastBytes{limit: 4}
	for _, s := range []string{"abc", "defghi", "\xffjk\n"} {
		_, _ = last.Write([]byte(s))
	}
	if got := last.text(); got != "jk" {
		t.Errorf("lastBytes = %q, want jk", got)
	}
}

// A program that exits with 0 has succeeded, also if it leaves a process that holds its output open. That process is killed.
func TestProcessesLeftBehind(t *testing.T) {
	for command, good := range map[string]bool{"sleep 1000 & echo done": true, "sleep 1000 & exit 3": false} {
		p := &program{command: command, grace: time.Millisecond, stderr: io.Discard}
		c := &pawl.Claim{}
		if err := p.run(t.Context(), c); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("%q: %v, want success: %t", command, err, good)
		}
		if got := string(c.Result()); good && got != "done\n" {
			t.Errorf("%q: the result is %q", command, got)
		}
	}
}

// A result is called JSON only if the server takes it for JSON: it would refuse the ack, and the task would be dead after an exit with 0.
func TestContentTypesOfResults(t *testing.T) {
	const text, bytes = "text/plain; charset=utf-8", "application/octet-stream"
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for data, want := range map[string]string{`{"a":1}`: "application/json", "7\n": "application/json", `"\ud800"`: "application/json",
		"seven": text, "{} {}": text, deep(1000): "application/json", deep(1001): text, "\"\xff\"": bytes, "\xff": bytes} {
		if got := contentTypeOf([]byte(data)); got != want {
			t.Errorf("%.20q is %s, want %s", data, got, want)
		}
	}
}

// A handler's environment has nothing that gives it the worker's rights, and all else.
func TestSecret(t *testing.T) {
	for variable, want := range map[string]bool{
		"PAWL_TOKEN=x": true, "PAWL_TOKEN_FILE=x": true, "PAWL_PAYLOAD_KEYS=x": true, "PAWL_CLIENT_CERT=x": true, "PAWL_CLIENT_KEY=x": true,
		"PAWL_CONTEXT=x": true, "PAWL_SERVER=x": false, "PAWL_TLS_CA=x": false, "PAWL_NAMESPACE=x": false, "PAWL_TOKENS=x": false,
		"PATH=PAWL_TOKEN": false, "x=PAWL_TOKEN=x": false,
	} {
		if got := secret(variable); got != want {
			t.Errorf("secret(%q) = %v", variable, got)
		}
	}
}
