package serverclock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock/redisstore/internal/serverclock"
)

// A slow answer says less of a server's clock than a quick one before it, and does
// not replace it: claims would be refused as too late that are not.
func TestASlowAnswerDoesNotBlurAClock(t *testing.T) {
	t.Parallel()
	base := time.Now()
	after := base.Add
	c := serverclock.NewOffset(base)
	c.Heard(base, after(2*time.Millisecond), 10*time.Second+time.Millisecond)
	c.Heard(after(time.Second), after(3*time.Second), 12*time.Second)
	require.Equal(t, 14*time.Second-time.Millisecond, time.Duration(c.At(after(4*time.Second)))*time.Microsecond)
}
