package listen

import (
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	tests := []struct {
		in        string
		want      Address
		out       string // String, if it is not in
		mux, loop bool
	}{
		{in: "tcp://127.0.0.1:7777", want: Address{Scheme: "tcp", Host: "127.0.0.1", Port: 7777}, mux: true, loop: true},
		{in: "tcp://127.0.0.1:0/", want: Address{Scheme: "tcp", Host: "127.0.0.1"}, out: "tcp://127.0.0.1:0", mux: true, loop: true},
		{in: "TLS://Box.Example", want: Address{Scheme: "tls", Host: "box.example", Port: 7777}, out: "tls://box.example:7777", mux: true},
		{in: "ws://localhost", want: Address{Scheme: "ws", Host: "localhost", Port: 80, Path: "/"}, out: "ws://localhost:80", loop: true},
		{in: "wss://box.example/mux", want: Address{Scheme: "wss", Host: "box.example", Port: 443, Path: "/mux"}, out: "wss://box.example:443/mux", mux: true},
		{in: "wss://box:1/a%2Fb%20c", want: Address{Scheme: "wss", Host: "box", Port: 1, Path: "/a%2Fb%20c"}},
		{in: "tls://[::1]:1", want: Address{Scheme: "tls", Host: "::1", Port: 1}, mux: true, loop: true},
		{in: "tls://[0:0::1]", want: Address{Scheme: "tls", Host: "::1", Port: 7777}, out: "tls://[::1]:7777", mux: true, loop: true},
		{in: "tcp://[::ffff:127.0.0.1]:2", want: Address{Scheme: "tcp", Host: "::ffff:127.0.0.1", Port: 2}, mux: true, loop: true},
		{in: "tcp://[fe80::1%25eth0]:2", want: Address{Scheme: "tcp", Host: "fe80::1%eth0", Port: 2}, mux: true},
		{in: "tls://0.0.0.0:7777", want: Address{Scheme: "tls", Host: "0.0.0.0", Port: 7777}, mux: true},
		{in: "tcp://127.9.8.7:1", want: Address{Scheme: "tcp", Host: "127.9.8.7", Port: 1}, mux: true, loop: true},
		{in: "unix:///run/x.sock", want: Address{Scheme: "unix", Path: "/run/x.sock"}, mux: true, loop: true},
		{in: "unix:///a b/100%@x", want: Address{Scheme: "unix", Path: "/a b/100%@x"}, mux: true, loop: true},
		{in: "unix://x.sock", want: Address{Scheme: "unix", Path: "x.sock"}, mux: true, loop: true},
		{in: "unix://", want: Address{Scheme: "unix"}, mux: true, loop: true},
		{in: "stdio", want: Address{Scheme: "stdio"}, mux: true, loop: true},
		{in: "stdio://", want: Address{Scheme: "stdio"}, out: "stdio", mux: true, loop: true},
	}
	for _, test := range tests {
		got, err := ParseAddress(test.in)
		if err != nil || got != test.want {
			t.Errorf("ParseAddress(%q) = %+v, %v; want %+v", test.in, got, err, test.want)
			continue
		}
		out := test.out
		if out == "" {
			out = test.in
		}
		if got.String() != out {
			t.Errorf("%q as text is %q, want %q", test.in, got, out)
		}
		if got.Mux() != test.mux || got.Loopback() != test.loop {
			t.Errorf("%q: mux %v, loopback %v; want %v, %v", test.in, got.Mux(), got.Loopback(), test.mux, test.loop)
		}
		if want := strings.HasPrefix(out, "tls") || strings.HasPrefix(out, "wss"); got.TLS() != want {
			t.Errorf("%q: TLS %v", test.in, got.TLS())
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "empty"},
		{"127.0.0.1:7777", "no scheme"},
		{"/run/x.sock", "no scheme"},
		{"ftp://x", "none of tcp"},
		{"http://x", "write ws"},
		{"https://x", "write wss"},
		{"stdio://x", "nothing may follow"},
		{"tcp://s3cret@box:1", "user information"},
		{"tcp://user:s3cret@box:1", "user information"},
		{"ws://box:1/?token=s3cret", "query"},
		{"ws://box:1/#s3cret", "fragment"},
		{"unix:///x.sock?token=s3cret", "query"},
		{"tcp://box:s3cret", "not a number"},
		{"tcp://box:65536", "not a number"},
		{"tcp://box:-1", "not a number"},
		{"tcp://box:+1", "not a number"},
		{"tcp://box:", "port after the colon"},
		{"tcp://:7777", "every interface is"},
		{"tcp://", "host is missing"},
		{"tcp://::1:7777", "brackets"},
		{"tcp://[::1", "not closed"},
		{"tcp://[127.0.0.1]:1", "not an IPv6"},
		{"tcp://[::1]x", "only a port"},
		{"tcp://[::1]:", "only a port"},
		{"tcp://[fe80::1%25e%2f]:1", "zone"},
		{"tcp://bo x:1", "not a name"},
		{"tcp://böx:1", "not a name"},
		{"tcp://a..b:1", "not a name"},
		{"tcp://.a:1", "not a name"},
		{"tcp://127.1:1", "looks like an IPv4"},
		{"tcp://0x7f000001:1", "looks like an IPv4"},
		{"tcp://1.2.3.4.5:1", "looks like an IPv4"},
		{"tcp://127.0.0.256:1", "looks like an IPv4"},
		{"tcp://127.0.0.08.:1", "looks like an IPv4"},
		{"tcp://box:1/path", "no path"},
		{"ws://box:1/%zz", "bad escape"},
		{"tcp://box:1\n", "control character"},
		{"unix:///a\x00b", "control character"},
	}
	for _, test := range tests {
		a, err := ParseAddress(test.in)
		if err == nil {
			t.Errorf("ParseAddress(%q) = %+v", test.in, a)
			continue
		}
		wantErr(t, err, test.want)
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("ParseAddress(%q) repeats a secret: %v", test.in, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"tcp://127.0.0.1:7777", "wss://box.example/mux", "ws://h/%2e%2e//a", "unix:///x", "unix://", "stdio", "tls://[fe80::1%25a]:1", "tcp://a@b", "tcp://1.2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			if a != (Address{}) {
				t.Errorf("%q: an error and %+v", s, a)
			}
			return
		}
		again, err := ParseAddress(a.String())
		if err != nil || again != a {
			t.Errorf("%q is %+v, which as %q is %+v, %v", s, a, a, again, err)
		}
		if strings.ContainsAny(a.Host, "@/?#\\ ") {
			t.Errorf("%q: host %q", s, a.Host)
		}
	})
}
