package pathuri

// MarshalText returns the canonical text, "" for the zero value. JSON goes through it, as value and as map key.
func (u URI) MarshalText() ([]byte, error) { return []byte(u.s), nil }

// UnmarshalText is [Parse]. It refuses empty text: a field that may be without a path is left out (omitzero) or null.
func (u *URI) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}
