package pathuri

import "testing"

func TestUTF16(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "",
		"aé日":                      "a\x00\xe9\x00\xe5\x65",
		"\U0001F600":               "\x3d\xd8\x00\xde",
		"\xed\xa0\x80":             "\x00\xd8",
		"\xed\xbf\xbfa":            "\xff\xdfa\x00",
		"\uFFFD":                   "\xfd\xff",
		"\xed\xb0\x80\xed\xa0\x80": "\x00\xdc\x00\xd8", // low before high is no pair
	} {
		units, ok := encodeUTF16(text)
		if units != want || !ok {
			t.Errorf("%q is %q, %v; want %q", text, units, ok, want)
		}
		if back := decodeUTF16(units); back != text {
			t.Errorf("%q came back as %q", text, back)
		}
	}
	for _, text := range []string{"\xff", "\xed", "\xed\xa0", "\xed\xa0\x41", "a\xc3", "\xed\x9f\xff"} {
		if clean, ok := cleanWTF8(text); ok {
			t.Errorf("%q is taken for WTF-8: %q", text, clean)
		}
	}
}
