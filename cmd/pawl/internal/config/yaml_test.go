package config

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Settings are the texts of flags.
func TestSettingsKeepNumbers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "conf.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a_b: 12345678901234567890123\nb: 1000000.5\nc: 1e6\nd: true\ne: 4GiB\nf: 0x10\ng: '007'\n")
	got, err := readSettings(path)
	want := map[string]string{"a-b": "12345678901234567890123", "b": "1000000.5", "c": "1000000", "d": "true", "e": "4GiB",
		"f": "16", "g": "007"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("readSettings = %v, %v, want %v", got, err, want)
	}
	for text, want := range map[string]string{"a: [1]": "a: want a single value", "a:": "a: want a single value",
		"a: {b: 1}": "a: want a single value", "a: .inf": ".inf is not a JSON number", "- a": "cannot unmarshal",
		"a_b: 1\na-b: 2": "a-b is given twice", "a-b: 1\na_b: 1": "a-b is given twice"} {
		write(text)
		if _, err := readSettings(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", text, err, want)
		}
	}
}

// The value of a number is kept to the last digit.
func TestYAMLToJSON(t *testing.T) {
	for text, want := range map[string]string{
		"a: 12345678901234567890123": `{"a":12345678901234567890123}`,
		"a: -98765432109876543210":   `{"a":-98765432109876543210}`,
		"a: 18446744073709551615":    `{"a":18446744073709551615}`,
		"a: 18446744073709551616":    `{"a":18446744073709551616}`,
		"a: 0.1234567890123456789":   `{"a":0.1234567890123456789}`,
		"a: 100000000000000000000.5": `{"a":100000000000000000000.5}`,
		"a: 1e400":                   `{"a":1e400}`,
		"a: 1.50":                    `{"a":1.50}`,
		"a: -0":                      `{"a":-0}`,
		"a: 0xffffffffffffffffffff":  `{"a":"0xffffffffffffffffffff"}`, // a string to the library
		"a: 0x1f":                    `{"a":31}`,
		"a: 0o17":                    `{"a":15}`,
		"a: 0b101":                   `{"a":5}`,
		"a: 1_000":                   `{"a":1000}`,
		"a: +5":                      `{"a":5}`,
		"a: .5":                      `{"a":0.5}`,
		"a: -.5e3":                   `{"a":-0.5e3}`,
		"a: 5.":                      `{"a":5}`,
		"a: 007.5":                   `{"a":7.5}`,
		"a: '12'":                    `{"a":"12"}`,
		"a: !!str 12":                `{"a":"12"}`,
		"a: [1, two, true, null, ~]": `{"a":[1,"two",true,null,null]}`,
		"a: {}\nb: []":               `{"a":{},"b":[]}`,
		"a: &x {n: 12345678901234567890123}\nb: *x":               `{"a":{"n":12345678901234567890123},"b":{"n":12345678901234567890123}}`,
		"a: &x {n: 1, m: 2}\nb:\n  <<: *x\n  n: 3":                `{"a":{"n":1,"m":2},"b":{"n":3,"m":2}}`,
		`{"payload": {"id": 12345678901234567890123, "f": 1.10}}`: `{"payload":{"id":12345678901234567890123,"f":1.10}}`,
		"z: <&>\na: caf\u00e9":                                    `{"z":"<&>","a":"café"}`,
		`{"z": "\ud83d\ude00\/", "a": 1}`:                         `{"z":"\ud83d\ude00\/","a":1}`,
		"- 1\n- 2":                                                `[1,2]`,
		"":                                                        `null`,
	} {
		got, err := YAMLToJSON([]byte(text))
		if err != nil || string(got) != want {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += strings.ReplaceAll("C: &C [*P,*P,*P,*P,*P,*P,*P,*P,*P]\n", "C", string(c))
		bomb = strings.ReplaceAll(bomb, "P", string(c-1))
	}
	for text, want := range map[string]string{
		"a: .inf":         "line 1: .inf is not a JSON number",
		"a: 1\nb: .NaN":   "line 2: .NaN is not a JSON number",
		"a:\n  1: x":      "line 2: an object key is not a string",
		"a: {true: x}":    "an object key is not a string",
		"a: {x: 1, x: 2}": "already defined",
		`{"x":1,"x":2}`:   `duplicate object member name "x"`,
		"a: &a [*a]":      "contains itself",
		bomb:              "excessive aliasing",
	} {
		if got, err := YAMLToJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %.40s, %v, want %q", text, got, err, want)
		}
	}
}
