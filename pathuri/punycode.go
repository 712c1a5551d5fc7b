package pathuri

import "math"

// The parameters that IDNA gives Punycode (RFC 3492). The standard library has it, but not for others to import.
const (
	acePrefix = "xn--"

	punyBase, punyTMin, punyTMax = 36, 1, 26
	punySkew, punyDamp           = 38, 700
	punyBias, punyFirst          = 72, 128
)

// punyEncode spells a label in ASCII.
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
