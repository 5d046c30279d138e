package client

import (
	"math"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"time"
)

// Backoff returns the pause before an attempt is repeated: the Retry-After of resp, if it is a
// refusal that has one, plus a random part of a pause. A success has it for something else, as
// when to ask for a result. The pause begins with shortest, doubles with each attempt
// (attempt is 0 for the first), and is longest at most. resp may be nil. Backoff has the
// signature of Backoff in go-retryablehttp. It does not sleep, and does not shorten a
// Retry-After: [CheckRetry] refuses to repeat after a pause that is too long.
func Backoff(shortest, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	pause := jitter(pauseAfter(shortest, longest, attempt))
	if resp != nil && resp.StatusCode >= http.StatusBadRequest {
		if after, ok := retryAfter(resp.Header); ok {
			return after + min(pause, math.MaxInt64-after)
		}
	}
	return pause
}

// pauseAfter returns the pause after n pauses, without its random part.
func pauseAfter(first, longest time.Duration, n int) time.Duration {
	if first <= 0 {
		return 0
	}
	for ; n > 0 && first < longest; n-- {
		if first > longest/2 {
			return longest
		}
		first *= 2
	}
	return min(first, max(longest, 0))
}

// jitter shortens d by a random part, so that clients that failed together do not repeat together.
func jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return max(d, 0)
	}
	return d - rand.N(d/2) //nolint:gosec // it protects no secret
}

// retryAfter returns the pause of the Retry-After header (RFC 9110, section 10.2.3):
// seconds, or a date. A date in the past is 0, and a number that does not fit is the
// longest duration. ok is false if there is none, or it is malformed.
func retryAfter(h http.Header) (d time.Duration, ok bool) {
	value := textproto.TrimString(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	var seconds int64
	for i := range len(value) {
		c := value[i]
		if c < '0' || c > '9' {
			return retryDate(value)
		}
		if seconds = seconds*10 + int64(c-'0'); seconds > math.MaxInt64/int64(time.Second) {
			seconds = math.MaxInt64 / int64(time.Second) // more digits do not make it longer
		}
	}
	return time.Duration(seconds) * time.Second, true
}

func retryDate(value string) (d time.Duration, ok bool) {
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return max(time.Until(at), 0), true
}
