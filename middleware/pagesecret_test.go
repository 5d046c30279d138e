package middleware_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPageRepeatsNoSecret: a page has no field of a form with a secret, and asks to be reloaded
// instead: the browser itself then sends the form. Tokens against cross-site requests are in the
// page of the form too.
func TestPageRepeatsNoSecret(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{
		"password", "Password", "password_confirmation", "user[password]", "newPassword", "passwd", "pwd", "pass", "login.pw", "passphrase",
		"passcode", "Passwort", "mot_de_passe", "client_secret", "pin", "cardPin", "pin2", "cvv", "CVC2", "card[cvc]", "csc", "cc-csc", "cc-number",
		"card_number", "cardNumber", "card[number]", "creditCard", "security-code", "otp", "one-time-code", "token", "accessToken", "api_key", "ssn",
	} {
		for _, parsed := range []bool{false, true} {
			r := submission("once=k&" + url.Values{secret: {"hunter2"}}.Encode())
			if parsed {
				require.NoError(t, r.ParseForm())
			}
			page, ok := inProgressProblem().Page(r)
			require.True(t, ok)
			require.Empty(t, page.Again, secret)
			require.Empty(t, page.Fields, secret)
			require.Contains(t, strings.Join(page.Text, " "), "Reload this page", secret)
			require.NotContains(t, serve(inProgressProblem(), r).Body.String(), "hunter2", secret)
		}
	}
	for _, plain := range []string{
		"once", "sku", "shipping", "opinion", "compass", "passenger", "passport", "spinner", "pinned", "stopover", "cardholder", "number", "quantity", "tokens",
		"csrf_token", "csrfmiddlewaretoken", "gorilla.csrf.Token", "__RequestVerificationToken", "authenticity_token", "XSRF-TOKEN",
	} {
		page, ok := inProgressProblem().Page(submission(url.Values{plain: {"hunter2"}}.Encode()))
		require.True(t, ok)
		require.NotEmpty(t, page.Again, plain)
	}
}
