package latchtest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/httplatch/httplatch/internal/keytext"
	"github.com/httplatch/httplatch/lock"
)

func byteRules() []rule {
	return []rule{
		{
			"tokens_opaque",
			"tokens are 1 to 255 bytes of any value, and two that differ in any byte or in length are two",
			tokensOpaque,
		},
		{
			"keys_opaque",
			"keys are 1 to 1024 bytes of any value, and two that differ in any byte or in length are two",
			keysOpaque,
		},
		{
			"slices_copied",
			"a store keeps copies of the slices that it is given, and returns copies",
			slicesCopied,
		},
		{
			"receipts_binary",
			"receipts and fingerprints are any bytes, up to 1 MiB for a receipt, and none at all",
			receiptsBinary,
		},
	}
}

// twins are texts that are equal to some encoding, comparison or separator.
var twins = [][2]string{
	{"tok1", "tok10"},
	{"tok", "TOK"},
	{"a", "a\x00"},
	{"a\x00b", "a\x00c"},
	{"a", "a "},
	{"a\nb", "a\r\nb"},
	{"a\r\nDEL a", "a\r\nGET a"},
	{"{a}b", "{a}c"},
	{"{}", "{"},
	{"a:b", "a::b"},
	{"a/b", "a//b"},
	{"a%41", "aA"},
	{"a%2541", "a%41"},
	{"a+b", "a b"},
	{`a"b`, `a\"b`},
	{"a*", "ab"},
	{"\xff\xfe", "\xff\xfd"},
	{"\xff", "\ufffd"},
	{"\u00e9", "e\u0301"},
	{"0", "00"},
	{"1", "1.0"},
}

func tokensOpaque(p *probe) {
	long := strings.Repeat("x", 254)
	all := make([]byte, 255)
	for i := range all {
		all[i] = byte(i)
	}
	pairs := append([][2]string{{long + "y", long + "z"}, {long + "y", long}, {string(all), string(all[:254])}}, twins...)
	for _, pair := range pairs {
		for _, t := range [][2]string{pair, {pair[1], pair[0]}} {
			p.twoTokens(t[0], t[1])
		}
	}
}

func (p *probe) twoTokens(ours, other string) {
	p.Helper()
	who := fmt.Sprintf("by %s of a key held by %s", quote([]byte(other)), quote([]byte(ours)))
	key, c := p.key(), p.claimOf(ours, p.long, 0)
	p.claim(key, c)
	if e := p.try(key, p.claimOf(other, p.long, 0)); e.Token != ours {
		p.failf("Claim %s returns the token %s", who, quote([]byte(e.Token)))
	}
	p.renew(who, false, key, p.claimOf(other, p.long, 0))
	p.settle(who, false, key, other, nil, p.long)
	p.release(who, false, key, other)
	p.wantClaim("Get after them", p.get(key), lock.Held, c)
	p.release("by the holder", true, key, ours)
}

func keysOpaque(p *probe) {
	unique := p.key() + "="
	long := unique + strings.Repeat("k", keytext.MaxBytes-len(unique)-1)
	keys := []string{long + "a", long + "b", long, unique}
	seen := map[string]bool{"": true}
	for _, pair := range twins {
		for _, s := range pair {
			if !seen[s] {
				seen[s] = true
				keys = append(keys, unique+s, s+unique)
			}
		}
	}
	for i, key := range keys {
		c := p.claimOf(fmt.Sprintf("token %d", i), 10*p.long, 0) // many round trips
		if e := p.try(key, c); e.State != lock.Held || e.Token != c.Token {
			p.failf("Claim of the key %s = %s, though only other keys were claimed", quote([]byte(key)), show(e))
		}
	}
	for i, key := range keys {
		c := p.claimOf(fmt.Sprintf("token %d", i), p.long, 0)
		p.wantClaim("Get of the key "+quote([]byte(key)), p.get(key), lock.Held, c)
		p.release("of the key "+quote([]byte(key)), true, key, c.Token)
	}
}

func slicesCopied(p *probe) {
	key, c := p.key(), p.claimOf("a", p.long, 0)
	want := p.claimOf("a", p.long, 0)
	granted := p.claim(key, c)
	clear(c.Fingerprint)
	p.wantClaim("Get after a change to the fingerprint that was passed in", p.get(key), lock.Held, want)
	clear(granted.Fingerprint)
	clear(p.get(key).Fingerprint)
	p.wantClaim("Get after a change to the fingerprint that was returned", p.get(key), lock.Held, want)

	receipt := []byte("done")
	p.settle("by the holder", true, key, "a", receipt, p.long)
	clear(receipt)
	p.wantReceipt("Get after a change to the receipt that was passed in", p.get(key), want, []byte("done"))
	clear(p.get(key).Receipt)
	refused := p.try(key, p.claimOf("b", p.long, 0))
	clear(refused.Receipt)
	clear(refused.Fingerprint)
	p.wantReceipt("Get after a change to the slices that were returned", p.get(key), want, []byte("done"))
}

func receiptsBinary(p *probe) {
	p.needsReceipts()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, b := range [][]byte{nil, {}, {0}, all, []byte("\r\n"), bytes.Repeat(all, 4096)} {
		key, c := p.key(), p.claimOf("a", p.long, 0)
		c.Fingerprint = b[:min(len(b), len(all))]
		p.claim(key, c)
		p.settle("by the holder", true, key, "a", b, p.long)
		p.wantReceipt("Get of it", p.get(key), c, b)
	}
}
