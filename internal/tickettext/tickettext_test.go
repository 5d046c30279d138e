package tickettext_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/tickettext"
)

const (
	name  = "user=42"
	token = "WyN0rBqkTkqRz0rWm8m3Wg.1f.AbCdEfGhIjk"
)

func TestTicketIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	longest, longToken := strings.Repeat("\xff", tickettext.MaxName), strings.Repeat("t", 70)
	for _, tt := range [][2]string{{name, token}, {"\x00", "\x00"}, {"Lock", "A"}, {longest, longToken}} {
		for _, kind := range []tickettext.Kind{tickettext.Lock, tickettext.Answer} {
			text, ok := tickettext.Write(kind, tt[0], tt[1])
			require.True(t, ok)
			require.LessOrEqual(t, len(text), tickettext.MaxBytes)
			require.Empty(t, strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
			gotName, gotToken, err := tickettext.Read(kind, text)
			require.NoError(t, err)
			require.Equal(t, tt[0], gotName)
			require.Equal(t, tt[1], gotToken)
		}
	}
	_, ok := tickettext.Write(tickettext.Lock, strings.Repeat("n", 400), token)
	require.False(t, ok)
	_, ok = tickettext.Write(tickettext.Lock, name, strings.Repeat("t", 256))
	require.False(t, ok)
}

// A ticket that was cut or altered at any place is an error, and so is one that is too long.
func TestAlteredTicketIsRefused(t *testing.T) {
	t.Parallel()
	text, _ := tickettext.Write(tickettext.Lock, name, token)
	hostile := []string{"", " ", text + "A", text + "\n", "=" + text, strings.Repeat("A", 1<<20), text + text}
	for i := range text {
		changed := []byte(text)
		if changed[i]++; changed[i] == 'Z'+1 || changed[i] == 'z'+1 || changed[i] == '9'+1 {
			changed[i] = 'A'
		}
		hostile = append(hostile, text[:i], text[i+1:], string(changed), text[:i]+"\x00"+text[i+1:])
	}
	for _, h := range hostile {
		_, _, err := tickettext.Read(tickettext.Lock, h)
		require.Error(t, err, h)
	}
	_, _, err := tickettext.Read(tickettext.Answer, text)
	require.ErrorContains(t, err, "something else")
}

// Whatever a caller hands in, Read returns a name and a token, or an error.
func FuzzRead(f *testing.F) {
	text, _ := tickettext.Write(tickettext.Lock, name, token)
	f.Add(text)
	f.Add(text[1:])
	f.Fuzz(func(t *testing.T, hostile string) {
		name, token, err := tickettext.Read(tickettext.Lock, hostile)
		if err != nil {
			return
		}
		again, _ := tickettext.Write(tickettext.Lock, name, token)
		require.Equal(t, hostile, again)
	})
}
