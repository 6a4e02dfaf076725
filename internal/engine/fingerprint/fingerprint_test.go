package fingerprint

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		`dial 10.0.0.7:5432: refused`:                          `dial *: refused`,
		`order 01890a5d-ac96-774b-bcce-b302099a8057 is "open"`: `order * is *`,
		`user 42 not found`:                                    `user * not found`,
		`at 0xdeadbeef`:                                        `at *`,
		`deadbeef is a word, 1deadbeef and deadbeef12345678`:   `deadbeef is a word, * and *`,
		`worker3 can't open 'a b' for 12s`:                     `worker* can't open * for *`,
		`a 5" disk`:                                            `a *" disk`,
		`stripe: card_declined (402) request req_4877840d`:     `stripe: card_declined (*) request req_*`,
		`no route to [2001:db8::7]:443`:                        `no route to [*]:*`,
		`std::bad_alloc in Foo::Bar`:                           `std::bad_alloc in Foo::Bar`,
		`mail to ann+1@example.com bounced`:                    `mail to * bounced`,
		`GET https://api.example.com/v1/users/42?token=a1&x=y`: `GET https://api.example.com/v1/users/*?*`,
		`exit status 137 of S3, x509, sha256 and EC2RoleError`: `exit status 137 of S3, x509, sha256 and EC2RoleError`,
		`pod api-7d9f8b6c5d-x2x4k of redis-0`:                  `pod api-* of redis-*`,
		`01HZY3V9K2M8Q4R6T7W0XEABCD`:                           `*`,
		``:                                                     ``,
	} {
		if got := Normalize(in); got != want {
			t.Errorf("Normalize(%q) = %q, want %q", in, got, want)
		}
	}
}

// The messages of each paragraph of the file are of one group, and those of different paragraphs are of different
// groups, as people see them.
func TestMessagesAreGroupedAsPeopleDo(t *testing.T) {
	file, err := os.ReadFile("testdata/messages.txt")
	if err != nil {
		t.Fatal(err)
	}
	messages, groups := map[string]bool{}, map[string]string{}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(string(file)), "\n\n") {
		all := strings.Split(paragraph, "\n")
		for _, message := range all {
			messages[message] = true
		}
		first := Normalize(all[0])
		for _, message := range all[1:] {
			if got := Normalize(message); got != first {
				t.Errorf("%q and %q are of two groups:\n%s\n%s", all[0], message, first, got)
			}
		}
		if other := groups[first]; other != "" {
			t.Errorf("%q and %q are of one group: %s", other, all[0], first)
		}
		groups[first] = all[0]
	}
	if len(messages) < 100 {
		t.Errorf("the file has %d messages, want 100", len(messages))
	}
}

func FuzzNormalize(f *testing.F) {
	const id = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, s := range []string{"", id, "x" + id, id + "x", "7-" + id, id + "-7", "_" + id, `"` + id, "0x", "0x1", "0xg1", "a0x12", "é0x12é",
		"12345678", "1234567", "abcdef0123456", "a1b2c3d4e5", "a_12345678", `"a" 'b" c' "`, `'"'"'`, "a\x00\xff1\xfe2",
		strings.Repeat("é", 160), strings.Repeat("x", 299) + "€", strings.Repeat(`"`, 3001), strings.Repeat("1 ", 1500),
		strings.Repeat("ab1 ", 500), "http://?", "a@b.c", "::", "v", "v1", "[::1]", "1:2:3:4:5:6", "://?x y?z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Normalize(s)
		if len(got) > maxNormalized || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("Normalize(%q) = %q", s, got)
		}
		if again := Normalize(s); again != got {
			t.Errorf("Normalize(%q) = %q, then %q", s, got, again)
		}
	})
}

func BenchmarkNormalize(b *testing.B) {
	for name, message := range map[string]string{"usual": "dial tcp 10.0.0.7:5432: connect: connection refused (order " +
		"01890a5d-ac96-774b-bcce-b302099a8057) for req_4877840d",
		"dots": strings.Repeat("a.", maxRead/2), "colons": strings.Repeat("a:", maxRead/2), "urls": strings.Repeat("://", maxRead/3),
		"quotes": strings.Repeat("a '", maxRead/3), "numbers": strings.Repeat("1.", maxRead/2)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Normalize(message)
			}
		})
	}
}
