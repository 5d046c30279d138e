//go:build unix

package sqlitestore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
)

// BenchmarkOrder compares orders behind a Locker with bare transactions of the same row, which wait
// for the disk as well, and with locks alone, which do not. On a busy machine, or a busy disk, only
// the processor's time can be compared.
func BenchmarkOrder(b *testing.B) {
	for _, callers := range []int{1, 8, 32} {
		for name, setUp := range map[string]func(b *testing.B, s *shop) func(key string) error{
			"bare": func(b *testing.B, s *shop) func(string) error {
				var turn sync.Mutex // bare callers would poll for their turn
				return func(key string) error {
					turn.Lock()
					defer turn.Unlock()
					tx, err := s.store.DB().BeginTx(b.Context(), nil)
					if err == nil {
						_, err = tx.Exec(insert, key)
					}
					if err != nil {
						return err
					}
					return tx.Commit()
				}
			},
			"transaction": func(b *testing.B, s *shop) func(string) error {
				l := s.locker(b, lock.WithBudget(10*time.Second))
				return func(key string) error {
					_, _, err := l.Once(b.Context(), key, nil, order(key))
					return err
				}
			},
			"apart": func(b *testing.B, s *shop) func(string) error {
				l := lock.New(s.store, lock.WithLogger(quiet), lock.WithBudget(10*time.Second))
				b.Cleanup(func() { require.NoError(b, l.Close(context.WithoutCancel(b.Context()))) })
				return func(key string) error {
					_, _, err := l.Once(b.Context(), key, nil, func(context.Context) ([]byte, error) { return []byte(key), nil })
					return err
				}
			},
			"lock": func(b *testing.B, s *shop) func(string) error {
				l := s.locker(b, lock.WithBudget(10*time.Second))
				return func(key string) error { return l.Do(b.Context(), key, func(context.Context) error { return nil }) }
			},
		} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				call := setUp(b, openShop(b))
				require.NoError(b, call("first"))
				var next atomic.Int64
				var all sync.WaitGroup
				before := processorTime()
				b.ResetTimer()
				for range callers {
					all.Go(func() {
						for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
							if err := call(fmt.Sprint(i)); err != nil {
								b.Error(err)
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64((processorTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
			})
		}
	}
}

// processorTime returns the processor time of this process, zero if it is not known.
func processorTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
