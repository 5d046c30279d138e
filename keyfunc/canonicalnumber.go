package keyfunc

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

var errExponent = errors.New("cannot be compared: it has a number with an exponent of more than 9 digits")

// appendNumber appends a valid JSON number in the spelling of ECMAScript, which RFC 8785 demands.
// If float64 rounds the number, this spelling would be another number, and appendNumber appends
// all digits.
func appendNumber(out []byte, literal string) ([]byte, error) {
	if len(literal) <= 15 && literal != "-0" && !strings.ContainsAny(literal, ".eE") {
		return append(out, literal...), nil // an integer that every float64 holds
	}
	exact, err := parseDecimal(literal)
	if err != nil {
		return out, err
	}
	if f, err := strconv.ParseFloat(literal, 64); err == nil {
		spelling := appendFloat(nil, f)
		if rounded, err := parseDecimal(string(spelling)); err == nil && rounded == exact {
			return append(out, spelling...), nil
		}
	}
	if exact.negative {
		out = append(out, '-')
	}
	out = append(out, exact.digits...)
	return strconv.AppendInt(append(out, 'e'), exact.exponent, 10), nil
}

// appendFloat appends f as ECMAScript spells it.
func appendFloat(out []byte, f float64) []byte {
	if f == 0 {
		return append(out, '0') // -0, too
	}
	if abs := math.Abs(f); 1e-6 <= abs && abs < 1e21 {
		return strconv.AppendFloat(out, f, 'f', -1, 64)
	}
	out = strconv.AppendFloat(out, f, 'e', -1, 64)
	if n := len(out); out[n-2] == '0' && (out[n-3] == '-' || out[n-3] == '+') { // Go writes two digits at least
		out = append(out[:n-2], out[n-1])
	}
	return out
}

// decimal is the integer digits, times ten to the power of exponent. digits has no zeros at its
// beginning and end, so equal numbers are equal decimals.
type decimal struct {
	negative bool
	digits   string // "" for zero
	exponent int64
}

// parseDecimal reads a valid JSON number. It fails if the exponent is very large.
func parseDecimal(literal string) (d decimal, err error) {
	mantissa := literal
	if at := strings.IndexAny(literal, "eE"); at >= 0 {
		exponent := literal[at+1:]
		mantissa = literal[:at]
		if len(strings.TrimLeft(exponent, "+-0")) > 9 {
			return d, errExponent
		}
		d.exponent, _ = strconv.ParseInt(strings.TrimPrefix(exponent, "+"), 10, 64) // it has at most 9 digits
	}
	mantissa, d.negative = strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	d.exponent -= int64(len(fraction))
	d.digits = strings.TrimRight(digits, "0")
	d.exponent += int64(len(digits) - len(d.digits))
	if d.digits = strings.TrimLeft(d.digits, "0"); d.digits == "" {
		return decimal{}, nil
	}
	return d, nil
}
