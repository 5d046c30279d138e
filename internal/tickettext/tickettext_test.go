package tickettext_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/tickettext"
)

const (
	name  = "user=42"
	token = "WyN0rBqkTkqRz0rWm8m3Wg.1f.AbCdEfGhIjk"
)

var until = time.Unix(1_800_000_000, 0)

func TestTicketIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	longest, longToken := strings.Repeat("\xff", tickettext.MaxName), strings.Repeat("t", 70)
	for _, tt := range [][2]string{{name, token}, {"\x00", "\x00"}, {"Lock", "A"}, {longest, longToken}} {
		for _, kind := range []tickettext.Kind{tickettext.Lock, tickettext.Answer} {
			written := tickettext.Ticket{Name: tt[0], Token: tt[1], Until: until}
			text, ok := written.Write(kind)
			require.True(t, ok)
			require.LessOrEqual(t, len(text), tickettext.MaxBytes)
			require.Empty(t, strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"))
			require.Equal(t, written, must.Get(tickettext.Read(kind, text))(t))
		}
	}
	for _, long := range []tickettext.Ticket{{Name: strings.Repeat("n", 400), Token: token}, {Name: name, Token: strings.Repeat("t", 256)}} {
		_, ok := long.Write(tickettext.Lock)
		require.False(t, ok)
	}
	for end, want := range map[time.Time]int64{{}: 0, time.Unix(1<<40, 0): 1<<32 - 1} { // what four bytes cannot say
		far := tickettext.Ticket{Name: name, Token: token, Until: end}
		text, _ := far.Write(tickettext.Lock)
		require.Equal(t, want, must.Get(tickettext.Read(tickettext.Lock, text))(t).Until.Unix())
	}
}

// A ticket that was cut or altered at any place is an error, and so is one that is too long.
func TestAlteredTicketIsRefused(t *testing.T) {
	t.Parallel()
	good := tickettext.Ticket{Name: name, Token: token, Until: until}
	text, _ := good.Write(tickettext.Lock)
	hostile := []string{"", " ", text + "A", text + "\n", "=" + text, strings.Repeat("A", 1<<20), text + text}
	for i := range text {
		changed := []byte(text)
		if changed[i]++; changed[i] == 'Z'+1 || changed[i] == 'z'+1 || changed[i] == '9'+1 {
			changed[i] = 'A'
		}
		hostile = append(hostile, text[:i], text[i+1:], string(changed), text[:i]+"\x00"+text[i+1:])
	}
	for _, h := range hostile {
		require.Error(t, must.Err(tickettext.Read(tickettext.Lock, h)), h)
	}
	require.ErrorContains(t, must.Err(tickettext.Read(tickettext.Answer, text)), "something else")
}

// Whatever a caller hands in, Read returns a name and a token, or an error.
func FuzzRead(f *testing.F) {
	good := tickettext.Ticket{Name: name, Token: token, Until: until}
	text, _ := good.Write(tickettext.Lock)
	f.Add(text)
	f.Add(text[1:])
	f.Fuzz(func(t *testing.T, hostile string) {
		read, err := tickettext.Read(tickettext.Lock, hostile)
		if err != nil {
			return
		}
		again, _ := read.Write(tickettext.Lock)
		require.Equal(t, hostile, again)
	})
}
