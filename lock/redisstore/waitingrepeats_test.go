package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// A thousand repeats wait for the answers to a hundred requests. In the process of the requests
// they ask the server nothing. In other processes, only the first of each key and process asks:
// four times a second, or once if it is notified, after some more at the beginning.
func TestCommandsOfWaitingRepeats(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "counts commands for 3 s")
	t.Parallel()
	const keys, repeats, waits = 100, 10, 3 * time.Second
	for name, opts := range map[string][]redisstore.Option{"polls": nil, "notifications": {redisstore.WithNotifications()}} {
		for _, processes := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s, processes=%d", name, processes), func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t)
				lockers := make([]*lock.Locker, processes)
				for i := range lockers {
					l := lock.New(open(t, server.URL(), opts...), lock.WithBudget(patience), lock.WithLease(4*patience),
						lock.WithMaxHold(4*patience), lock.WithWait(patience))
					t.Cleanup(func() { assert.NoError(t, l.Close(context.WithoutCancel(t.Context()))) })
					lockers[i] = l
				}
				answered := make(chan struct{})
				var all sync.WaitGroup
				once := func(l *lock.Locker, key int, first bool) {
					all.Go(func() {
						_, replayed, err := l.Once(t.Context(), strconv.Itoa(key), nil, func(context.Context) ([]byte, error) {
							<-answered
							return []byte("answer"), nil
						})
						assert.NoError(t, err)
						assert.Equal(t, first, !replayed)
					})
				}
				for key := range keys {
					once(lockers[0], key, true)
				}
				require.Eventually(t, func() bool { return len(server.Keys(t)) == keys }, patience, 10*time.Millisecond)
				before, began := setsOf(t, server), time.Now()
				for i := range keys * repeats {
					once(lockers[i/keys%processes], i%keys, false)
				}
				time.Sleep(waits)
				claims, waited := setsOf(t, server)-before, time.Since(began)
				close(answered)
				all.Wait()
				t.Logf("%d claims in %v", claims, waited.Round(time.Millisecond))
				most := 7 + 4*waited.Seconds()
				if len(opts) > 0 {
					most = 10 + waited.Seconds()
				}
				require.LessOrEqual(t, float64(claims), most*keys*float64(processes-1))
				if processes > 1 {
					require.Greater(t, claims, keys*(processes-1), "they ask again")
				}
			})
		}
	}
}

var setCalls = regexp.MustCompile(`cmdstat_set:calls=(\d+)`)

// setsOf returns the number of claims that the server has processed.
func setsOf(t *testing.T, s *redistest.Server) int {
	t.Helper()
	found := setCalls.FindStringSubmatch(fmt.Sprint(s.Do(t, "INFO", "commandstats")))
	require.Len(t, found, 2)
	calls, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return calls
}
