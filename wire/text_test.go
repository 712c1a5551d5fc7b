package wire

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ text, json string }{
		{"", `""`},
		{"plain", `"plain"`},
		{"<&>", `"\u003c\u0026\u003e"`},
		{"\x00\n\u2028é𝄞", "\"\\u0000\\n\\u2028é𝄞\""},
		{"\xff", `{"b64":"/w=="}`},
		{"é\xc3", `{"b64":"w6nD"}`},
		{"\xed\xa0\x80", `{"b64":"7aCA"}`}, // half a surrogate pair
		{`{"b64":"/w=="}`, `"{\"b64\":\"/w==\"}"`},
	} {
		got, err := json.Marshal(Text(test.text))
		if err != nil || string(got) != test.json {
			t.Errorf("%q became %s, %v", test.text, got, err)
		}
		var back Text
		if err := json.Unmarshal(got, &back); err != nil || string(back) != test.text {
			t.Errorf("%q came back as %q, %v", test.text, back, err)
		}
	}
	for _, bad := range []string{`1`, `null`, `[]`, `{}`, `{"b64":1}`, `{"b64":"?"}`, `{"b64":null}`, `true`} {
		var text Text
		if err := json.Unmarshal([]byte(bad), &text); err == nil {
			t.Errorf("%s was taken for %q", bad, text)
		}
	}
	if Texts(nil) != nil || Strings(nil) != nil {
		t.Error("nil became something")
	}
	if got := Strings(Texts([]string{"a", "\xff"})); len(got) != 2 || got[1] != "\xff" {
		t.Errorf("%q", got)
	}
}

func FuzzText(f *testing.F) {
	for _, text := range []string{"", "a", "\xff", "é\xc3", "<&>\u2028", `{"b64":"/w=="}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := json.Marshal(struct{ T []Text }{[]Text{Text(text)}})
		if err != nil {
			t.Fatal(err)
		}
		var back struct{ T []Text }
		if err := json.Unmarshal(b, &back); err != nil || len(back.T) != 1 || string(back.T[0]) != text {
			t.Fatalf("%q became %s, and %q, %v", text, b, back.T, err)
		}
		// Whatever JSON it is read from, it is never changed silently.
		var any Text
		if err := json.Unmarshal([]byte(text), &any); err == nil && text[0] == '"' && utf8.ValidString(text) {
			again, err := json.Marshal(any)
			var same Text
			if err != nil || json.Unmarshal(again, &same) != nil || same != any {
				t.Fatalf("%q, %q", any, same)
			}
		}
	})
}
