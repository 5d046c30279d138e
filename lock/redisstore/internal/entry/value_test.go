package entry_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore/internal/entry"
)

// encoded is the value of a held entry.
func encoded(c lock.Claim, key string) string { return string(entry.Append(nil, &c, key)) }

func TestValueFormatIsStable(t *testing.T) {
	t.Parallel()
	full := lock.Claim{
		Token: "tok", Attempt: 300, Fingerprint: []byte{0, 0xff}, Owner: "host-1",
		Linger: 1500*time.Millisecond + 1,
	}
	require.Equal(t, "H1\x03tok"+"0000000001501"+"0000000000000000"+"\xac\x02"+"\x02\x00\xff"+"\x06host-1"+"\x01k",
		encoded(full, "k"))
	require.Equal(t, "H1\x01a"+"0000000000000"+"0000000000000000"+"\x00\x00\x00\x00",
		encoded(lock.Claim{Token: "a", Attempt: -1}, ""))
}

func FuzzDecode(f *testing.F) {
	f.Add(encoded(lock.Claim{Token: "a", Attempt: 1, Fingerprint: []byte("fp"), Owner: "o", Linger: time.Hour}, "k"))
	f.Add("S1\x01a" + "0000000000000" + "1795202986496692" + "\x01\x00\x00\x00receipt")
	f.Add("F1\x00" + "0000000000000" + "1795202986496692" + "\x00\x00\x00\x00")
	f.Add("H1\x01a" + "0000000000000" + "0000000000000000" + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01" + "\xff\xff\xff\xff\x0f")
	f.Add("H1\x01a" + "+000000000000" + "0000000000000000" + "\x00\x00\x00\x00")
	f.Add("")
	f.Fuzz(func(t *testing.T, raw string) {
		v, err := entry.Decode(raw)
		if err != nil {
			return
		}
		e := v.Entry(-1)
		if len(e.Token)+len(e.Fingerprint)+len(e.Owner)+len(e.Key)+len(e.Receipt) > len(raw) {
			t.Fatal("grew")
		}
		if v.Linger < 0 || e.Fence < 0 || e.Attempt < 0 || e.Left != 0 {
			t.Fatalf("%+v, linger %v", e, v.Linger)
		}
		if e.State != lock.Held {
			return
		}
		w, err := entry.Decode(encoded(lock.Claim{Token: e.Token, Linger: v.Linger, Attempt: e.Attempt, Fingerprint: e.Fingerprint, Owner: e.Owner}, e.Key))
		require.NoError(t, err)
		e.Fence = 0
		require.Equal(t, e, w.Entry(-1))
		require.Equal(t, v.Linger, w.Linger)
	})
}
