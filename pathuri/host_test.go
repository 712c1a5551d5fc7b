package pathuri

import (
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	tests := []struct{ in, want string }{
		{"Srv", "srv"},
		{"srv.example.ORG", "srv.example.org"},
		{"wsl$", "wsl$"},
		{"wsl%24", "wsl$"},
		{"a_b-c~d!&'()+,;=", "a_b-c~d!&'()+,;="},
		{"Bücher", "xn--bcher-kva"},
		{"BÜCHER.example", "xn--bcher-kva.example"},
		{"b%C3%BCcher", "xn--bcher-kva"},
		{"日本語", "xn--wgv71a119e"},
		{"他们为什么不说中文", "xn--ihqwcrb4cv8a8dqg056pqjye"},
		{"XN--Bcher-KVA", "xn--bcher-kva"},
		{"[0:0:0:0:0:0:0:1]", "[::1]"},
		{"[FE80::1]", "[fe80::1]"},
		{".", refused}, // \\.\x would be a device
		{"..", refused},
		{"%2e", refused},
		{"%3f", refused},
		{"a..b", refused},
		{"a.", refused},
		{"a*b", refused},
		{"a%00", refused},
		{"a%2Fb", refused},
		{"a%5Cb", refused},
		{"a%40b", refused},
		{"a%b", refused},
		{"a%FFb", refused},
		{"bu\u0308cher", refused}, // would need normalising
		{"\u212A", refused},       // the Kelvin sign would become k
		{"a\u3002b", refused},
		{"[::1", refused},
		{"[::1]x", refused},
		{"[::1]:80", refused},
		{"[1.2.3.4]", refused},
		{"[fe80::1%25eth0]", refused},
		{"[]", refused},
		{"c:", refused},
		{strings.Repeat("a", maxHost), strings.Repeat("a", maxHost)},
		{strings.Repeat("a", maxHost+1), refused},
		{strings.Repeat("é", 127), punyOf(strings.Repeat("é", 127))},
	}
	for _, test := range tests {
		want := test.want
		if want != refused {
			want = "file://" + want + "/share"
		}
		got, err := Parse("file://" + test.in + "/share")
		if got.String() != want || (err != nil) != (want == refused) {
			t.Errorf("host %q: %q, %v; want %q", test.in, got, err, want)
		}
	}
}

func punyOf(label string) string { return acePrefix + punyEncode([]rune(label)) }

// The sample strings of RFC 3492, section 7.1, lower-cased.
func TestPunycode(t *testing.T) {
	for in, want := range map[string]string{
		"ليهمابتكلموشعربي؟":            "egbpdaj6bu4bxfgehfvwxn",
		"他们为什么不说中文":                    "ihqwcrb4cv8a8dqg056pqjye",
		"pročprostěnemluvíčesky":       "proprostnemluvesky-uyb24dma41a",
		"почемужеонинеговорятпорусски": "b1abfaaepdrnnbgefbadotcwatmq2g4l",
		"3年b組金八先生":                     "3b-ww4c5e180e575a65lsy2b",
		"bücher":                       "bcher-kva",
	} {
		if got := punyEncode([]rune(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
