package middleware

import (
	"slices"
	"strings"
	"unicode"
)

// Names of fields that are secret: as a word of the name, and as a part of it
// without what separates words.
var (
	secretWords = []string{"pass", "pw", "pin", "cvv", "cvc", "csc", "cvn", "otp", "totp", "token", "ssn"}
	secretParts = []string{
		"passw", "passphrase", "passcode", "pwd", "kennwort", "motdepasse", "secret", "apikey", "privatekey", "onetimecode",
		"cardnumber", "cardno", "cardnum", "creditcard", "ccnumber", "ccnum", "securitycode", "verificationcode",
	}
	// Tokens of these are in the page of the form as well.
	crossSiteParts = []string{"csrf", "xsrf", "authenticity", "requestverification"}
)

// secret reports whether the name of f says that no page should repeat it. How the form shows
// the field, the server does not know.
func (f Field) secret() bool {
	words := wordsOf(f.Name)
	joined := strings.Join(words, "")
	has := func(part string) bool { return strings.Contains(joined, part) }
	if slices.ContainsFunc(secretParts, has) {
		return true
	}
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains(secretWords, word) && (word != "token" || !slices.ContainsFunc(crossSiteParts, has))
	})
}

// wordsOf splits a name where there is no letter, and before a capital that follows a small letter:
// "cardCvc2" has the words card and cvc.
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
