package pathuri

import (
	"encoding/json"
	"errors"
	"testing"
)

func TestJSON(t *testing.T) {
	type message struct {
		Path URI          `json:"path"`
		Cwd  URI          `json:"cwd,omitzero"`
		Opt  *URI         `json:"opt,omitempty"`
		Map  map[URI]bool `json:"map,omitempty"`
	}
	var m message
	in := `{"path":"file:///c%3a/x/","opt":null,"map":{"file:///tmp/":true}}`
	if err := json.Unmarshal([]byte(in), &m); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(m)
	if want := `{"path":"file:///C:/x","map":{"file:///tmp":true}}`; string(out) != want || err != nil {
		t.Errorf("got  %s, %v\nwant %s", out, err, want)
	}
	if out, err := json.Marshal(URI{}); string(out) != `""` || err != nil {
		t.Errorf("zero: %s, %v", out, err)
	}
	for _, in := range []string{`""`, `"/x"`, `"file:///a?b"`, `"file:///%00"`} {
		u := parsed(t, "file:///before")
		var e *Error
		if err := json.Unmarshal([]byte(in), &u); !errors.As(err, &e) || u.String() != "file:///before" {
			t.Errorf("%s: %v, %v", in, u, err)
		}
	}
}
