package pathuri

import (
	"math"
	"strings"
	"unicode/utf8"
)

// Punycode is RFC 3492 with the parameters of IDNA. The standard library has it, but not for us to import.
const (
	acePrefix = "xn--"

	punyBase, punyTMin, punyTMax = 36, 1, 26
	punySkew, punyDamp           = 38, 700
	punyBias, punyFirst          = 72, 128
)

func punyEncode(label []rune) string {
	var out []byte
	for _, r := range label {
		if r < punyFirst {
			out = append(out, byte(r))
		}
	}
	basic := len(out)
	if basic > 0 {
		out = append(out, '-')
	}
	n, delta, bias := punyFirst, 0, punyBias
	for done := basic; done < len(label); {
		next := rune(math.MaxInt32)
		for _, r := range label {
			if int(r) >= n {
				next = min(next, r)
			}
		}
		delta += (int(next) - n) * (done + 1)
		n = int(next)
		for _, r := range label {
			if int(r) < n {
				delta++
			}
			if int(r) == n {
				out = appendPunyInt(out, delta, bias)
				bias = punyAdapt(delta, done+1, done == basic)
				delta = 0
				done++
			}
		}
		delta++
		n++
	}
	return string(out)
}

func appendPunyInt(out []byte, q, bias int) []byte {
	const digits = "abcdefghijklmnopqrstuvwxyz0123456789"
	for k := punyBase; ; k += punyBase {
		t := min(max(k-bias, punyTMin), punyTMax)
		if q < t {
			return append(out, digits[q])
		}
		out = append(out, digits[t+(q-t)%(punyBase-t)])
		q = (q - t) / (punyBase - t)
	}
}

// punyDecode undoes punyEncode; ok is false for what that cannot have made.
func punyDecode(code string) (label string, ok bool) {
	var out []rune
	if at := strings.LastIndexByte(code, '-'); at >= 0 {
		out, code = []rune(code[:at]), code[at+1:]
	}
	n, i, bias := punyFirst, 0, punyBias
	for len(code) > 0 {
		old, w := i, 1
		for k := punyBase; ; k += punyBase {
			if code == "" {
				return "", false
			}
			digit := punyDigit(code[0])
			code = code[1:]
			if digit < 0 || digit > (math.MaxInt32-i)/w {
				return "", false
			}
			i += digit * w
			t := min(max(k-bias, punyTMin), punyTMax)
			if digit < t {
				break
			}
			if w > math.MaxInt32/(punyBase-t) {
				return "", false
			}
			w *= punyBase - t
		}
		bias = punyAdapt(i-old, len(out)+1, old == 0)
		n += i / (len(out) + 1)
		i %= len(out) + 1
		if n > utf8.MaxRune {
			return "", false
		}
		out = append(out[:i], append([]rune{rune(n)}, out[i:]...)...)
		i++
	}
	return string(out), true
}

func punyDigit(c byte) int {
	switch {
	case 'a' <= c && c <= 'z':
		return int(c - 'a')
	case '0' <= c && c <= '9':
		return int(c-'0') + 26
	}
	return -1
}

func punyAdapt(delta, points int, first bool) int {
	if first {
		delta /= punyDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for ; delta > (punyBase-punyTMin)*punyTMax/2; k += punyBase {
		delta /= punyBase - punyTMin
	}
	return k + (punyBase-punyTMin+1)*delta/(delta+punySkew)
}
