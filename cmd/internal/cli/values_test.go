package cli

import "testing"

func TestSizes(t *testing.T) {
	for in, want := range map[string]string{"4096": "4KiB", "256MiB": "256MiB", "1000": "1000B", "3 GiB": "3GiB", "0": "0"} {
		var v SizeValue
		if err := v.Set(in); err != nil || v.String() != want {
			t.Errorf("size %q = %q, %v, want %q", in, v.String(), err, want)
		}
	}
	for _, bad := range []string{"", "MiB", "-1", "1e3", "99999999TiB", "5MB"} {
		if err := new(SizeValue).Set(bad); err == nil {
			t.Errorf("the invalid size %q was accepted", bad)
		}
	}
}
