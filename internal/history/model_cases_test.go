package history_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// Times are in ms.
const ms = int64(time.Millisecond)

// begun is a call of a case; does and unanswered make an operation of it.
type begun struct{ call }

func at(from int64, v verb, token string) begun {
	return begun{call{verb: v, token: token, from: from * ms}}
}

// claims is a claim of 50 ms, and 100 ms of linger.
func claims(from int64, token, replaces string) begun {
	b := at(from, opClaim, token)
	b.replaces, b.lease, b.linger = replaces, 50*time.Millisecond, 100*time.Millisecond
	return b
}

// lasts is a claim of an endless lease.
func lasts(from int64, token string) begun {
	b := at(from, opClaim, token)
	b.lease = endless
	return b
}

func renews(from int64, token string) begun {
	b := claims(from, token, "")
	b.verb = opRenew
	return b
}

// settles leaves a receipt for 50 ms.
func settles(from int64, token, receipt string) begun {
	b := at(from, opSettle, token)
	b.receipt, b.lease = receipt, 50*time.Millisecond
	return b
}

func (b begun) fencedUntil(deadline int64) begun {
	b.fenced, b.to = true, deadline*ms
	return b
}

func (b begun) is(to int64, ok bool) record {
	b.to = to * ms
	return record{in: b.call, out: answer{known: true, ok: ok}, returned: to * ms}
}

func (b begun) finds(to int64, e entry) record {
	r := b.is(to, false)
	r.out.entry = e
	return r
}

// granted is the answer to a claim that got the key.
func (b begun) granted(to int64) record {
	return b.finds(to, entry{state: lock.Held, token: b.token, left: b.lease})
}

func (b begun) fence(to, fence int64) record {
	r := b.granted(to)
	r.in.fenced, r.out.entry.fence = true, fence
	return r
}

// unanswered is an unknown outcome.
func (b begun) unanswered() record {
	if b.to == 0 {
		b.to = never
	}
	return record{in: b.call, out: answer{}}
}

func held(token string) entry      { return entry{state: lock.Held, token: token} }
func abandoned(token string) entry { return entry{state: lock.Abandoned, token: token} }

func receipt(token, text string) entry {
	return entry{state: lock.Settled, token: token, receipt: text}
}

func (e entry) leaving(left int64) entry {
	e.left = time.Duration(left * ms)
	return e
}

func TestModel(t *testing.T) {
	t.Parallel()
	nothing := entry{}
	for _, c := range []struct {
		name  string
		legal bool
		ops   []record
	}{
		{"refused by the holder", true, []record{lasts(0, "a").granted(1), lasts(2, "b").finds(3, held("a"))}},
		{"refused without a holder", false, []record{lasts(2, "b").finds(3, held("a"))}},
		{"refused by a later holder", false, []record{lasts(2, "b").finds(3, held("a")), lasts(4, "a").granted(5)}},
		{"refused by one of the same time", true, []record{lasts(2, "b").finds(5, held("a")), lasts(4, "a").granted(6)}},
		{"two holders", false, []record{lasts(0, "a").granted(1), lasts(2, "b").granted(3)}},
		{"granted twice to one token, as if new", false, []record{claims(0, "a", "").granted(1), claims(20, "a", "").granted(21)}},
		{"granted again", true, []record{
			claims(0, "a", "").granted(1), claims(20, "a", "").finds(21, held("a").leaving(30)),
		}},
		{"free after a claim", false, []record{lasts(0, "a").granted(1), at(2, opGet, "").finds(3, nothing)}},

		{"unknown claim, applied", true, []record{lasts(0, "a").unanswered(), lasts(2, "b").finds(3, held("a"))}},
		{"unknown claim, not applied", true, []record{lasts(0, "a").unanswered(), lasts(2, "b").granted(3)}},
		{"unknown claim, late", true, []record{
			lasts(0, "a").unanswered(), lasts(2, "b").granted(3),
			at(4, opRelease, "b").is(5, true), lasts(6, "c").finds(7, held("a")),
		}},
		{"unknown claim, applied before its call", false, []record{lasts(4, "a").unanswered(), lasts(2, "b").finds(3, held("a"))}},
		{"unknown claim, applied and gone", false, []record{
			lasts(0, "a").unanswered(), lasts(2, "b").finds(3, held("a")), lasts(4, "c").granted(5),
		}},
		{"unknown claim, applied twice", false, []record{
			lasts(0, "a").unanswered(), lasts(2, "b").finds(3, held("a")),
			at(4, opRelease, "a").is(5, true), at(6, opGet, "").finds(7, held("a")),
		}},
		{"unknown release, applied", true, []record{
			lasts(0, "a").granted(1), at(2, opRelease, "a").unanswered(), lasts(4, "b").granted(5),
		}},
		{"unknown release, late", true, []record{
			lasts(0, "a").granted(1), at(2, opRelease, "a").unanswered(),
			lasts(4, "b").finds(5, held("a")), lasts(6, "b").granted(7),
		}},
		{"unknown release of another", false, []record{
			lasts(0, "a").granted(1), at(2, opRelease, "b").unanswered(), lasts(4, "b").granted(5),
		}},
		{"fenced claim, in time", true, []record{
			lasts(0, "a").fencedUntil(10).unanswered(), at(8, opGet, "").finds(9, entry{state: lock.Held, token: "a", fence: 7}),
		}},
		{"fenced claim, too late", false, []record{
			lasts(0, "a").fencedUntil(10).unanswered(),
			at(20, opGet, "").finds(21, nothing), at(22, opGet, "").finds(23, entry{state: lock.Held, token: "a", fence: 7}),
		}},

		{"release of another's", false, []record{lasts(0, "a").granted(1), at(2, opRelease, "b").is(3, true)}},
		{"release of one's own, denied", false, []record{lasts(0, "a").granted(1), at(2, opRelease, "a").is(3, false)}},
		{"settled and replayed", true, []record{
			lasts(0, "a").granted(1), settles(2, "a", "x").is(3, true), lasts(4, "b").finds(5, receipt("a", "x")),
		}},
		{"settled again", true, []record{
			lasts(0, "a").granted(1), settles(2, "a", "x").is(3, true), settles(4, "a", "y").is(5, true),
			lasts(6, "b").finds(7, receipt("a", "x")),
		}},
		{"settled again, and the answer changed", false, []record{
			lasts(0, "a").granted(1), settles(2, "a", "x").is(3, true), settles(4, "a", "y").is(5, true),
			lasts(6, "b").finds(7, receipt("a", "y")),
		}},
		{"receipt released", false, []record{
			lasts(0, "a").granted(1), settles(2, "a", "x").is(3, true), at(4, opRelease, "a").is(5, true),
		}},
		{"receipt forgotten", true, []record{
			lasts(0, "a").granted(1), settles(2, "a", "x").is(3, true), at(4, opForget, "a").is(5, true), lasts(6, "b").granted(7),
		}},
		{"receipt over", true, []record{
			lasts(0, "a").granted(1), settles(2, "a", "x").is(3, true), lasts(60, "b").granted(61),
		}},
		{"receipt over too early", false, []record{
			lasts(0, "a").granted(1), settles(2, "a", "x").is(3, true), lasts(40, "b").granted(41),
		}},

		{"lapsed too early", false, []record{claims(0, "a", "").granted(1), at(40, opGet, "").finds(41, abandoned("a"))}},
		{"lapsed", true, []record{claims(0, "a", "").granted(1), at(60, opGet, "").finds(61, abandoned("a"))}},
		{"held too long", false, []record{claims(0, "a", "").granted(1), at(60, opGet, "").finds(61, held("a"))}},
		{"held too long, or claimed late", true, []record{claims(0, "a", "").granted(30), at(60, opGet, "").finds(61, held("a"))}},
		{"remembered too long", false, []record{claims(0, "a", "").granted(1), at(160, opGet, "").finds(161, abandoned("a"))}},
		{"forgotten too early", false, []record{claims(0, "a", "").granted(1), at(140, opGet, "").finds(141, nothing)}},
		{"held again", false, []record{
			claims(0, "a", "").granted(20), at(50, opGet, "").finds(55, abandoned("a")), at(56, opGet, "").finds(57, held("a")),
		}},
		{"renewed", true, []record{
			claims(0, "a", "").granted(1), renews(40, "a").is(41, true), at(80, opGet, "").finds(81, held("a")),
		}},
		{"renewed, and over too early", false, []record{
			claims(0, "a", "").granted(1), renews(40, "a").is(41, true), at(80, opGet, "").finds(81, abandoned("a")),
		}},
		{"renewed after its lapse", true, []record{
			claims(0, "a", "").granted(1), renews(60, "a").is(61, true), at(100, opGet, "").finds(101, held("a")),
		}},
		{"renewed after its end", false, []record{claims(0, "a", "").granted(1), renews(160, "a").is(161, true)}},
		{"what is left agrees", true, []record{
			claims(0, "a", "").granted(20), at(30, opGet, "").finds(31, held("a").leaving(25)),
			at(50, opGet, "").finds(51, held("a").leaving(5)), at(60, opGet, "").finds(61, abandoned("a").leaving(95)),
		}},
		{"what is left does not agree", false, []record{
			claims(0, "a", "").granted(20), at(30, opGet, "").finds(31, held("a").leaving(25)),
			at(50, opGet, "").finds(51, held("a").leaving(15)),
		}},
		{"taken over", true, []record{claims(0, "a", "").granted(1), claims(60, "b", "a").granted(61)}},
		{"taken over while held", false, []record{claims(0, "a", "").granted(1), claims(30, "b", "a").granted(31)}},
		{"taken over from another", false, []record{claims(0, "a", "").granted(1), claims(60, "b", "c").granted(61)}},
		{"not taken over", false, []record{claims(0, "a", "").granted(1), claims(60, "b", "a").finds(61, abandoned("a"))}},

		{"fences grow", true, []record{
			lasts(0, "a").fence(1, 7), at(2, opRelease, "a").is(3, true), lasts(4, "b").fence(5, 8),
		}},
		{"a fence repeats", false, []record{
			lasts(0, "a").fence(1, 7), at(2, opRelease, "a").is(3, true), lasts(4, "b").fence(5, 7),
		}},
		{"something was in the way and ended", true, []record{
			claims(0, "a", "").granted(1), claims(2, "b", "").finds(5, nothing), at(3, opRelease, "a").is(4, true),
		}},
		{"nothing was in the way", false, []record{claims(2, "b", "").finds(5, nothing)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(newCounts())
			h.began = h.began.Add(-time.Second) // all that is over by now
			h.wall = h.wall.Add(-time.Second)
			h.records = c.ops
			err := judge{time.Minute, filepath.Join(t.TempDir(), "case")}.check(h.model(), h.partitions())
			if c.legal {
				require.NoError(t, err)
				return
			}
			var illegal *illegalError
			require.ErrorAs(t, err, &illegal)
		})
	}
}
