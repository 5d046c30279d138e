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
