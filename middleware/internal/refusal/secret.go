package refusal

import (
	"slices"
	"strings"
	"unicode"
)

// Names of secret fields: secretWords match a word of the name, secretParts a part of the
// name without separators.
var (
	secretWords = []string{"pass", "pw", "pin", "cvv", "cvc", "csc", "cvn", "otp", "totp", "token", "ssn"}
	secretParts = []string{
		"passw", "passphrase", "passcode", "pwd", "kennwort", "motdepasse", "secret", "apikey", "privatekey", "onetimecode",
		"cardnumber", "cardno", "cardnum", "creditcard", "ccnumber", "ccnum", "securitycode", "verificationcode",
	}
	// The page of the form shows these tokens, too.
	crossSiteParts = []string{"csrf", "xsrf", "authenticity", "requestverification"}
)

// Secret reports whether a field with this name must not be repeated in a page. Only the name can
// decide: the server does not see whether the form hides the field.
func Secret(name string) bool {
	words := wordsOf(name)
	joined := strings.Join(words, "")
	has := func(part string) bool { return strings.Contains(joined, part) }
	if slices.ContainsFunc(secretParts, has) {
		return true
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(secretWords, word) && (word != "token" || !slices.ContainsFunc(crossSiteParts, has))
	})
}

// wordsOf splits a name at each character that is not a letter, and before each capital that follows
// a small letter: "cardCvc2" has the words card and cvc.
func wordsOf(name string) []string {
	var spaced strings.Builder
	small := false
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c):
			c = ' '
		case small && unicode.IsUpper(c):
			spaced.WriteByte(' ')
		}
		small = unicode.IsLower(c)
		spaced.WriteRune(unicode.ToLower(c))
	}
	return strings.Fields(spaced.String())
}
