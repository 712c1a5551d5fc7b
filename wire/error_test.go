package wire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

var codes = []Code{
	Invalid, NotFound, Exists, Permission, NotRegular, IsDirectory, NotDirectory, NotEmpty, CrossConvention, TooLarge, Limit,
	Unsupported, Canceled, Deadline, Unauthenticated, Fenced, Restarted, UnknownOutcome, Changed, UnknownProcess,
	StdinClosed, StartFailed, SandboxUnavailable, SandboxDenied, Internal, Expired,
}

// targets are what errors.Is is asked for.
var targets = func() []error {
	all := []error{
		fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, errors.ErrUnsupported, context.Canceled,
		context.DeadlineExceeded, os.ErrDeadlineExceeded, io.EOF, ErrCut, ErrEnded, fs.ErrClosed,
	}
	for _, code := range codes {
		all = append(all, code)
	}
	return all
}()

// cross is what the other end gets.
func cross(t testing.TB, err error) error {
	t.Helper()
	payload, merr := json.Marshal(end{Error: FromError(err)})
	if merr != nil {
		t.Fatal(merr)
	}
	_, got, derr := decodeEnd(payload)
	if derr != nil {
		t.Fatal(derr)
	}
	return got
}

func TestErrorIdentity(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	_, notExist := os.Open(missing)
	for _, test := range []struct {
		err  error
		want []error // that errors.Is finds on the other end
	}{
		{errors.New("anything"), []error{Internal}},
		{notExist, []error{NotFound, fs.ErrNotExist}},
		{fmt.Errorf("reading: %w", notExist), []error{NotFound, fs.ErrNotExist}},
		{fs.ErrExist, []error{Exists, fs.ErrExist}},
		{fs.ErrPermission, []error{Permission, fs.ErrPermission}},
		{fs.ErrInvalid, []error{Invalid, fs.ErrInvalid}},
		{errors.ErrUnsupported, []error{Unsupported, errors.ErrUnsupported}},
		{context.Canceled, []error{Canceled, context.Canceled}},
		{context.DeadlineExceeded, []error{Deadline, context.DeadlineExceeded, os.ErrDeadlineExceeded}},
		{os.ErrDeadlineExceeded, []error{Deadline, context.DeadlineExceeded, os.ErrDeadlineExceeded}},
		{NotFound, []error{NotFound, fs.ErrNotExist}},
		{fmt.Errorf("%w: a pipe", NotRegular), []error{NotRegular}},
		{fmt.Errorf("%w: %w", Changed, notExist), []error{Changed, NotFound, fs.ErrNotExist}},
		{fmt.Errorf("%w: %w", NotFound, notExist), []error{NotFound, fs.ErrNotExist}},
		{errors.Join(fs.ErrPermission, fmt.Errorf("x: %w", TooLarge), io.EOF), []error{Permission, fs.ErrPermission, TooLarge}},
		{errors.Join(&Error{Code: Fenced, Also: []Code{Exists}}, fs.ErrPermission), []error{Fenced, Exists, fs.ErrExist, Permission, fs.ErrPermission}},
		{fmt.Errorf("again: %w", &Error{Code: SandboxDenied, Also: []Code{Permission}, Message: "no"}), []error{SandboxDenied, Permission, fs.ErrPermission}},
		// A cut of another connection is no cut of this one, and an end there none here.
		{fmt.Errorf("relay: %w", ErrCut), []error{Internal}},
		{io.EOF, []error{Internal}},
		{Code("from_tomorrow"), []error{Code("from_tomorrow")}},
	} {
		got := cross(t, test.err)
		want := map[error]bool{}
		for _, target := range test.want {
			want[target] = true
			if !errors.Is(got, target) {
				t.Errorf("%v: is not %v on the other end", test.err, target)
			}
		}
		for _, target := range targets {
			if errors.Is(got, target) && !want[target] {
				t.Errorf("%v: is %v on the other end", test.err, target)
			}
		}
		if got.Error() != test.err.Error() {
			t.Errorf("%q became %q", test.err, got)
		}
		// Crossing once more, by way of a relay, changes nothing.
		if diff := cmp.Diff(got, cross(t, got)); diff != "" {
			t.Errorf("%v: on the second crossing: %s", test.err, diff)
		}
	}
}

// An error made of a code is the same before it has crossed, so that an environment looks the same near and far.
func TestCodesHaveIdentity(t *testing.T) {
	for _, code := range codes {
		near, far := fmt.Errorf("%w: x", code), cross(t, code)
		for _, target := range targets {
			if errors.Is(near, target) != errors.Is(far, target) {
				t.Errorf("%s is %v: %v near, %v far", code, target, errors.Is(near, target), errors.Is(far, target))
			}
		}
	}
}

func TestErrorFields(t *testing.T) {
	err := fmt.Errorf("copying: %w", &fs.PathError{Op: "open", Path: "/a\xff", Err: fs.ErrNotExist})
	var got *Error
	if !errors.As(cross(t, err), &got) {
		t.Fatal("not an *Error")
	}
	want := &Error{Code: NotFound, Op: "open", Path: "/a\xff", Message: "copying: open /a\uFFFD: file does not exist"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The outermost of several is told.
	err = fmt.Errorf("copying: %w", &Error{Code: Exists, Op: "rename", Path: "/b", Message: "no"})
	if got := FromError(err); got.Op != "rename" || got.Path != "/b" || got.Message != "copying: no" {
		t.Errorf("%+v", got)
	}
	if text := (&Error{Code: NotEmpty}).Error(); text != "not empty" {
		t.Errorf("an error without a message says %q", text)
	}
	if text := Code("new\x1b_one").Error(); text != `new\x1b one` {
		t.Errorf("an unknown code says %q", text)
	}
}

func TestControlCharacters(t *testing.T) {
	nasty := "a\x1b[31mred\x07 \x9b tab\tline\n\x7f \u0085 é\xff"
	want := `a\x1b[31mred\x07 ` + "\uFFFD tab\tline\n" + `\x7f \x85 é` + "\uFFFD"
	if got := FromError(errors.New(nasty)).Message; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// Not even a peer that does not escape can reach the terminal.
	if got := FromError(&Error{Code: Invalid, Message: nasty}).Message; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	payload, err := json.Marshal(end{Error: &Error{Code: Invalid, Op: nasty, Message: nasty}})
	if err != nil {
		t.Fatal(err)
	}
	if _, got, _ := decodeEnd(payload); got.Message != want || got.Op != want {
		t.Errorf("received %q, %q", got.Op, got.Message)
	}
}

func TestDecodeEnd(t *testing.T) {
	for _, test := range []struct{ payload, result, failure string }{
		{`{}`, "null", ""},
		{`{"result":null}`, "null", ""},
		{`{"result":"x"}`, `"x"`, ""},
		{`{"result":{"a":[1,2]}}`, `{"a":[1,2]}`, ""},
		{` { "result" : 1 , "unknown" : 2 } `, "1", ""},
		{`{"unknown":1}`, "null", ""},
		{`{"error":{"code":"limit","message":"no more","new":1}}`, "", "no more"},
		{`{"result":1,"error":{"code":"limit"}}`, "", "limit"},
		{`{"error":{}}`, "", "internal"},
	} {
		result, failure, err := decodeEnd([]byte(test.payload))
		if err != nil || string(result) != test.result || (failure != nil) != (test.failure != "") || failure != nil && failure.Error() != test.failure {
			t.Errorf("%s: %s, %v, %v", test.payload, result, failure, err)
		}
	}
	for _, payload := range []string{``, `{`, `{"result":`, `{"result":}`, `{"result":1`, `{"result":1}}`, `[]`, `1`, `{"error":"x"}`} {
		if _, _, err := decodeEnd([]byte(payload)); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

func TestDecodeAck(t *testing.T) {
	want := ack{1 << 40, 7, 851968}
	if got := string(want.append(nil)); got != `{"ack":{"offset":1099511627776,"frames":7,"credit":851968}}` {
		t.Error(got)
	}
	for _, payload := range []string{string(want.append(nil)), ` { "ack" : { "credit" : 851968, "frames":7, "offset":1099511627776, "new":1 } } `} {
		if got, err := decodeAck([]byte(payload)); err != nil || got == nil || *got != want {
			t.Errorf("%s: %+v, %v", payload, got, err)
		}
	}
	for _, payload := range []string{`{}`, `{"resize":{}}`, `{"say":"\"ack\""}`, `{"signal":"ack"}`, `"ack no"`} {
		if got, err := decodeAck([]byte(payload)); got != nil || err != nil {
			t.Errorf("%s: %+v, %v", payload, got, err)
		}
	}
	for _, payload := range []string{`{"ack":1}`, `{"ack":{"offset":-1.5}}`, `{"ack"`} {
		if _, err := decodeAck([]byte(payload)); !errors.Is(err, errProtocol) {
			t.Errorf("%s: %v", payload, err)
		}
	}
}

func FuzzError(f *testing.F) {
	f.Add("not_found", "open", "/a", "open /a: no", "invalid", uint8(0))
	f.Add("", "", "\xff\xfe", "\x1b[2J", "", uint8(1))
	f.Add("from_tomorrow", "x\x00", "", strings.Repeat("<\u2028", 50), "canceled", uint8(2))
	f.Fuzz(func(t *testing.T, code, op, path, message, also string, shape uint8) {
		var err error = &Error{Code: Code(code), Op: op, Path: Text(path), Message: message, Also: []Code{Code(also)}}
		switch shape % 4 {
		case 1:
			err = fmt.Errorf("%s: %w", message, &fs.PathError{Op: op, Path: path, Err: Code(code)})
		case 2:
			err = errors.Join(err, Code(also), fs.ErrExist)
		case 3:
			err = errors.New(message)
		}
		crossed := FromError(err)
		if crossed.Code == "" || !utf8.ValidString(crossed.Message) || strings.ContainsFunc(crossed.Message, obeyed) {
			t.Fatalf("%+v", crossed)
		}
		for _, target := range targets {
			// A joined code is one too; nothing that was there may get lost.
			if errors.Is(err, target) && target != io.EOF && target != ErrCut && target != ErrEnded && !errors.Is(crossed, target) {
				t.Fatalf("%v is lost", target)
			}
		}
		if !utf8.ValidString(string(crossed.Code)) || !utf8.ValidString(also) {
			return // codes are ours: JSON would repair them
		}
		var got *Error
		errors.As(cross(t, err), &got)
		if diff := cmp.Diff(crossed, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzEnd(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add([]byte(v.payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		result, failure, err := decodeEnd(payload)
		switch {
		case err != nil:
		case failure != nil:
			if failure.Code == "" || strings.ContainsFunc(failure.Error(), obeyed) {
				t.Fatalf("%+v", failure)
			}
		case !json.Valid(result):
			t.Fatalf("result %q", result)
		}
		if a, err := decodeAck(payload); err == nil && a != nil {
			again, err := decodeAck(a.append(nil))
			if err != nil || *again != *a {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
		}
	})
}
