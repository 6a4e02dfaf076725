package config

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/pflag"
)

// A setting that is given but empty is refused in a file, alone and in a list, unless it means something. An empty variable is none.
func TestEmptySettings(t *testing.T) {
	for _, c := range []struct{ file, env, want string }{
		{"listen: a", "", "a [x]"},
		{"listen: a", "b", "b [x]"},
		{"", "", " [x]"},
		{`listen: ""`, "", "listen: is empty: leave it out"},
		{`listen: ""`, "b", "b [x]"},
		{`allowed-hosts: ""`, "", "allowed-hosts: is empty: leave it out"},
		{"allowed_hosts: a,", "", "allowed-hosts: is empty: leave it out"},
		{"allowed_hosts: b", "", " [b]"},
		{`log_headers: ""`, "", " [x]"},
	} {
		path := filepath.Join(t.TempDir(), "pawl.yaml")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PAWL_LISTEN", c.env)
		t.Setenv("PAWL_ALLOWED_HOSTS", "")
		flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
		listen, hosts := flags.String("listen", "", ""), flags.StringSlice("allowed-hosts", []string{"x"}, "")
		flags.String("config", path, "")
		flags.StringSlice("log-headers", []string{"y"}, "")
		got := ""
		if err := Apply(flags, "config"); err != nil {
			got = err.Error()[len(path)+2:]
		} else {
			got = fmt.Sprint(*listen, " ", *hosts)
		}
		if got != c.want {
			t.Errorf("%s, with PAWL_LISTEN=%q: %s, want %s", c.file, c.env, got, c.want)
		}
	}
}
