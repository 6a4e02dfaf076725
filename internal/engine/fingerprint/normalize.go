package fingerprint

import (
	"bytes"
	"net/netip"
	"strings"

	"github.com/pawlq/pawl/internal/task"
)

// maxRead bounds how much of a message is read, maxNormalized the length of the result, in bytes.
const maxRead, maxNormalized = 2000, 300

// Normalize replaces what differs between failures of one kind with a star: quoted values, e-mail addresses, network addresses, times,
// durations, sizes, numbers, ids of all usual forms, and queries of URLs. Stars that are only separated by a punctuation mark become one.
// Names such as S3 and x509 stay, and so do the numbers of errors: a status, an exit code, an SQLSTATE.
//
// It is called at each death, on the leader's loop, so it uses no regular expressions, which took 7 us for a message of 100 bytes.
func Normalize(message string) string {
	n := normalizer{s: task.Cut(message, maxRead)}
	n.out = make([]byte, 0, min(len(n.s), maxNormalized)+16)
	for n.at < len(n.s) && len(n.out) <= maxNormalized {
		n.next()
	}
	return task.Cut(string(n.out), maxNormalized)
}

// normalizer passes over a message once.
type normalizer struct {
	s      string
	at     int
	out    []byte
	url    int    // where the URL ends that it is in
	before string // the last word
	open   [3]bool

	// Where runs of characters end that may be, or begin, an address or an id. They are found once, so that a message
	// costs no more than its length.
	local, email int // what may stand before an @, and the e-mail address that it begins; 0: none
	hexes        int // hexadecimal digits, colons and points
	encoded      int // digits of base64
}

// next consumes a quoted value, an address, a word, or the characters between words.
func (n *normalizer) next() {
	rest := n.s[n.at:]
	c := rest[0]
	starts := n.at == 0 || !isWord(n.s[n.at-1])
	quote := strings.IndexByte("\"'`", c)
	switch {
	case quote >= 0 && starts:
		n.quoted(rest, quote)
	case starts && (isHex(c) || c == ':') && n.star(n.ipv6()):
	case starts && isWord(c) && n.star(n.emailAddress()):
	case isWord(c):
		n.word(rest)
	case c == '?' && n.at < n.url && n.url > n.at+1:
		n.keep(1)
		n.star(n.url - n.at)
	default:
		if n.at >= n.url && strings.HasPrefix(rest, "://") {
			n.url = n.at + span(rest, inURL)
		}
		n.keep(1)
	}
}

// quoted replaces a quoted value with a star. An unclosed quote is kept; no other of its kind can follow.
func (n *normalizer) quoted(rest string, quote int) {
	if end := strings.IndexByte(rest[1:], rest[0]); !n.open[quote] && end >= 0 {
		n.star(end + 2)
		return
	}
	n.open[quote] = true
	n.keep(1)
}

// word replaces a word, or the ids and numbers in it, with stars.
func (n *normalizer) word(rest string) {
	if n.star(uuidAt(rest)) || n.star(n.base64()) {
		return
	}
	word := rest[:span(rest, isWord)]
	before := n.before
	n.before = word
	switch {
	case isName(word), isCode(before, word, n.s[:n.at]):
		n.keep(len(word))
		return
	case len(word) > 2 && word[0] == '0' && word[1] == 'x' && span(word[2:], isHex) == len(word)-2, isAmount(word):
		n.star(len(word))
		return
	}
	for end := n.at + len(word); n.at < end; {
		if n.s[n.at] == '_' {
			n.keep(1)
			continue
		}
		part := n.s[n.at : n.at+span(n.s[n.at:end], isAlnum)]
		switch digits := countDigits(part); {
		case isName(part), digits == 0 && !isID(part) && !n.isPodSuffix(part):
			n.keep(len(part))
		case digits == len(part), isID(part), n.isPodSuffix(part):
			n.star(len(part))
		default:
			n.name(part)
		}
	}
}

// name keeps a name with digits, except those at its beginning or end.
func (n *normalizer) name(part string) {
	n.star(span(part, isDigit))
	rest := strings.TrimLeft(part, digits)
	name := strings.TrimRight(rest, digits)
	n.keep(len(name))
	n.star(len(rest) - len(name))
}

// star replaces the next characters with a star, and reports whether there are any.
func (n *normalizer) star(size int) bool {
	if size == 0 {
		return false
	}
	n.at += size
	if end := len(n.out); end >= 2 && n.out[end-2] == '*' && strings.IndexByte(".:-,+T", n.out[end-1]) >= 0 {
		n.out = n.out[:end-1]
	} else if end == 0 || n.out[end-1] != '*' {
		n.out = append(n.out, '*')
	}
	return true
}

func (n *normalizer) keep(size int) {
	n.out = append(n.out, n.s[n.at:n.at+size]...)
	n.at += size
}

// isPodSuffix reports whether a part is what Kubernetes adds to the name of a pod: five characters without vowels, after another id.
func (n *normalizer) isPodSuffix(part string) bool {
	return len(part) == 5 && strings.Trim(part, "bcdfghjklmnpqrstvwxz2456789") == "" && bytes.HasSuffix(n.out, []byte("*-"))
}

// uuidAt returns the length of the UUID at the beginning of s if it is a word of its own, else 0.
func uuidAt(s string) int {
	const size = 36
	if len(s) < size || len(s) > size && isWord(s[size]) {
		return 0
	}
	for i := range size {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if s[i] != '-' {
				return 0
			}
		} else if !isHex(s[i]) {
			return 0
		}
	}
	return size
}

// minBase64 is how long padded base64 must at least be to be an id, such as the host id of S3.
const minBase64 = 24

// base64 returns the length of the base64 with padding that begins here, else 0.
func (n *normalizer) base64() int {
	if n.at >= n.encoded {
		n.encoded = n.at + span(n.s[n.at:], func(c byte) bool { return isAlnum(c) || c == '+' || c == '/' })
	}
	end := n.encoded + len(n.s[n.encoded:]) - len(strings.TrimLeft(n.s[n.encoded:], "="))
	if size := end - n.at; end > n.encoded && size >= minBase64 && size%4 == 0 && (end == len(n.s) || !isWord(n.s[end])) {
		return size
	}
	return 0
}

// maxAddress bounds an IPv6 address, maxLocal what is before the @ of an e-mail address.
const maxAddress, maxLocal = 45, 64

// ipv6 returns the length of the IPv6 or MAC address that begins here, else 0.
func (n *normalizer) ipv6() int {
	if n.at >= n.hexes {
		n.hexes = n.at + span(n.s[n.at:], func(c byte) bool { return isHex(c) || c == ':' || c == '.' })
	}
	if n.hexes-n.at > maxAddress || n.hexes < len(n.s) && isWord(n.s[n.hexes]) {
		return 0
	}
	text := strings.TrimRight(n.s[n.at:n.hexes], ".")
	if strings.Count(text, ":") < 2 {
		return 0
	}
	if !strings.HasSuffix(text, "::") {
		text = strings.TrimRight(text, ":")
	}
	if _, err := netip.ParseAddr(text); err == nil && strings.IndexByte(text, ':') >= 0 {
		return len(text)
	}
	if len(text) == 17 && strings.Count(text, ":") == 5 && text[2] == ':' && text[5] == ':' && text[8] == ':' &&
		text[11] == ':' && text[14] == ':' {
		return len(text)
	}
	return 0
}

// emailAddress returns the length of the e-mail address that begins here, else 0.
func (n *normalizer) emailAddress() int {
	if n.at >= n.local {
		n.local = n.at + span(n.s[n.at:], func(c byte) bool { return isWord(c) || strings.IndexByte(".%+-", c) >= 0 })
		n.email = emailEnd(n.s, n.local)
	}
	if n.local-n.at > maxLocal || n.email == 0 {
		return 0
	}
	return n.email - n.at
}

// emailEnd returns where an e-mail address ends whose @ is at a place, or 0 if there is none.
func emailEnd(s string, at int) int {
	if at == len(s) || s[at] != '@' {
		return 0
	}
	host := s[at+1:]
	host = strings.TrimRight(host[:span(host, func(c byte) bool { return isAlnum(c) || c == '.' || c == '-' })], ".-")
	if strings.IndexByte(host, '.') < 1 {
		return 0
	}
	return at + 1 + len(host)
}

// names are words with digits that name something.
var names = func() map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(`s3 ec2 r53 x509 x86 x86_64 x64 x11 md4 md5 sha1 sha2 sha3 sha224 sha256 sha384 sha512 crc32 crc32c crc64 utf8 utf16 utf32
		utf8mb3 utf8mb4 latin1 iso8859 iso8601 rfc822 rfc2822 rfc3339 base16 base32 base58 base62 base64 http1 http2 http3 h2 h2c h3 ipv4 ipv6 ip4 ip6 tcp4
		tcp6 udp4 udp6 oauth1 oauth2 k8s k3s i18n l10n e2e p2p b2b b2c s2s int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 i32 i64
		u8 u16 u32 u64 f32 f64 amd64 arm64 armv7 win32 win64 linux32 linux64 pkcs1 pkcs5 pkcs7 pkcs8 pkcs11 pkcs12 p12 p256 p384 p521 ed25519 x25519 secp256k1
		rs256 rs384 rs512 es256 es384 es512 hs256 hs384 hs512 ps256 aes128 aes192 aes256 rsa2048 rsa4096 tlsv1 sslv2 sslv3 tls1 tls12 tls13 mp3 mp4 h264 h265
		jpeg2000 log4j log4j2 neo4j db2 sqlite3 boto3 boto python2 python3 py2 py3 psycopg2 psycopg3 urllib3 httplib2 libxml2 bzip2 gzip2 lz4 7z zlib1 web3
		auth0 route53 d3 v8 es5 es6 es2015 o365 m365 office365 3d 2d 2fa mfa2 4xx 5xx 2xx 3xx`) {
		all[w] = true
	}
	return all
}()

// isName reports whether a word with digits names something, such as S3, x509 or v1.
func isName(word string) bool {
	if len(word) > 10 || len(word) < 2 {
		return false
	}
	var lower [10]byte
	for i := range len(word) {
		c := word[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		lower[i] = c
	}
	w := lower[:len(word)]
	if w[0] == 'v' && isDigit(w[1]) { // of an API: v1, v1beta1
		rest := strings.TrimLeft(string(w[2:]), "abeltph")
		return rest == "" || len(rest) == 1 && len(w) > 3 && isDigit(rest[0])
	}
	return names[string(w)]
}

// isCode reports whether a word is the number of an error after one that says so: a status, an exit code, an SQLSTATE.
// read is what comes before it.
func isCode(before, word, read string) bool {
	if len(word) > 5 || countDigits(word) == 0 {
		return false
	}
	switch strings.ToLower(before) {
	case "status", "statuscode", "status_code", "code", "exitcode", "exit_code", "errno", "http", "signal":
		return countDigits(word) == len(word)
	case "sqlstate":
		return len(word) == 5
	}
	return strings.HasSuffix(read, "rror ") && countDigits(word) == len(word)
}

// units end amounts: durations and sizes.
const units = " h m s ms us ns d min sec mins secs hours minutes seconds days b kb mb gb tb kib mib gib tib bytes k x "

// isAmount reports whether a word consists of numbers with units, such as 12s, 1m30s or 5MiB.
func isAmount(word string) bool {
	if !isDigit(word[0]) {
		return false
	}
	for word != "" {
		word = strings.TrimLeft(word, digits)
		unit := word[:span(word, isLetter)]
		if unit == "" || len(unit) > 7 || !strings.Contains(units, " "+strings.ToLower(unit)+" ") {
			return false
		}
		if word = word[len(unit):]; word != "" && !isDigit(word[0]) {
			return false
		}
	}
	return true
}

// isID reports whether a word of letters and digits looks as if a program has made it up: it is hexadecimal, has digits
// in several places, or its letters form no words.
func isID(s string) bool {
	n := countDigits(s)
	if n > 0 && len(s) >= 6 && span(s, isHex) == len(s) {
		return true
	}
	var runs, words, longest int // of digits, of letters as in camel case, and the longest of these without a vowel
	letters := len(s) - n
	for i := 0; i < len(s); {
		if isDigit(s[i]) {
			runs, i = runs+1, i+span(s[i:], isDigit)
			continue
		}
		upper := span(s[i:], isUpper)
		lower := span(s[i+upper:], isLower)
		if words++; upper > 1 && lower > 0 {
			words++ // as in HTTPServer
		}
		if run := s[i : i+upper+lower]; lower > 0 && !strings.ContainsAny(run, "aeiouyAEIOUY") {
			longest = max(longest, len(run))
		}
		i += upper + lower
	}
	switch {
	case n > 0 && len(s) >= 5 && runs >= 2, n >= 2 && len(s) >= 20:
		return true
	case n > 0 && len(s) >= 8:
		return letters < 3*words && words > 2 || longest >= 4
	}
	return len(s) >= 12 && words >= 4 && 2*letters < 5*words
}

const digits = "0123456789"

func countDigits(s string) (n int) {
	for i := range len(s) {
		if isDigit(s[i]) {
			n++
		}
	}
	return n
}

// span returns how many bytes at the beginning of s satisfy is.
func span(s string, is func(byte) bool) (n int) {
	for n < len(s) && is(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
func isUpper(c byte) bool  { return c >= 'A' && c <= 'Z' }
func isLower(c byte) bool  { return c >= 'a' && c <= 'z' }
func isLetter(c byte) bool { return isUpper(c) || isLower(c) }
func isAlnum(c byte) bool  { return isLetter(c) || isDigit(c) }
func isWord(c byte) bool   { return isAlnum(c) || c == '_' }
func inURL(c byte) bool    { return c > ' ' && strings.IndexByte("\"'`<>()", c) < 0 }
