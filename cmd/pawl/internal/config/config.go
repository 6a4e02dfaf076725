// Package config reads the settings of a command from its environment and from a YAML file.
package config

import (
	"os"
	"strings"

	"github.com/pawlq/pawl/cmd/internal/cli"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Apply sets every flag that was not on the command line from the environment, or else from the file named by the flag
// called file. An empty variable is none. An unknown name in the file is an error, so that a misspelt setting is never
// ignored, and so is an empty value.
func Apply(flags *pflag.FlagSet, file string) error {
	var wrong error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(envName(f.Name))
		if ok && (value != "" || cli.MayBeEmpty(f)) && !f.Changed && f.Name != "help" && wrong == nil {
			if err := set(flags, f.Name, value); err != nil {
				wrong = cli.Usage("%s: %w", envName(f.Name), err)
			}
		}
	})
	path := flags.Lookup(file).Value.String()
	if wrong != nil || path == "" {
		return wrong
	}
	settings, err := readSettings(path)
	if err != nil {
		return err
	}
	for name, value := range settings {
		f := flags.Lookup(name)
		if f == nil || name == file || name == "help" {
			return cli.Usage("%s: %q is not a setting", path, name)
		}
		if f.Changed {
			continue
		}
		if err := set(flags, name, value); err != nil {
			return cli.Usage("%s: %s: %w", path, name, err)
		}
	}
	return nil
}

// set sets a flag. It refuses what the command line refuses, too.
func set(flags *pflag.FlagSet, name, value string) error {
	if err := flags.Set(name, value); err != nil {
		return err
	}
	return cli.CheckEmpty(flags.Lookup(name))
}

func envName(flag string) string {
	return "PAWL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readSettings reads a file of NAME: VALUE lines, in which names may use _ for -.
func readSettings(path string) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, cli.Usage("--config: %w", err)
	}
	var raw map[string]*yamlValue
	if err := yaml.Unmarshal(data, &raw); err != nil {
		return nil, cli.Usage("%s: %w", path, err)
	}
	out := make(map[string]string, len(raw))
	for name, value := range raw {
		text, ok := value.text()
		if !ok {
			return nil, cli.Usage("%s: %s: want a single value: a string, a number, true or false", path, name)
		}
		flag := strings.ReplaceAll(name, "_", "-")
		if _, twice := out[flag]; twice {
			return nil, cli.Usage("%s: %s is given twice, with - and with _", path, flag)
		}
		out[flag] = text
	}
	return out, nil
}
