//go:build unix

package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/internal/testkit/testmain"
)

// TestKilledOrdersAreRepeatedPastTheirLocks: a desk is killed with thirty orders, each behind
// Idempotent and the lock of its user, and begun a little after the one before. So the kill comes at
// a different moment of each order: before the first renewals, between those of the lock and of the
// record, and after several. Each repeat waits for the record of its order, and is then placed: the
// lock of the killed order does not refuse it. Before, about half of them were refused as held.
func TestKilledOrdersAreRepeatedPastTheirLocks(t *testing.T) {
	testmain.SkipIn(t, testmain.Quick, "waits for leases")
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) []string{
		"redis": func(t *testing.T) []string {
			t.Helper()
			return []string{"-redis", redistest.Start(t).URL(), "-abandoned", "rerun"}
		},
		"postgres": func(t *testing.T) []string {
			t.Helper()
			return []string{"-postgres", newDatabase(t).url + "&pool_max_conns=40"}
		},
		"postgres, no transactions": func(t *testing.T) []string {
			t.Helper()
			return []string{"-postgres", newDatabase(t).url, "-transaction=false", "-abandoned", "rerun"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The lock has a first lease of 5 s, and is renewed after 1.7 s, 5.7 s and so on. The record
			// is renewed after 4 s and 8 s.
			const orders, lease = 30, 12 * time.Second
			args := append(store(t), "-lease", lease.String(), "-budget", "1s")
			victim, survivor := startProcess(t, args...), startProcess(t, args...)
			header := func(i int, work string) []string {
				return []string{"X-User-ID", fmt.Sprintf("user-%d", i), "Idempotency-Key", "k", "X-Work", work}
			}
			body := `{"sku":"tea","quantity":1}`
			var all sync.WaitGroup
			for i := range orders {
				all.Go(func() { _, _ = victim.try(http.MethodPost, "/orders", body, header(i, "30s")...) })
				time.Sleep(9 * time.Second / orders)
			}
			victim.kill(t)
			all.Wait()

			var held sync.Map
			for i := range orders {
				all.Go(func() {
					for t.Context().Err() == nil {
						got, err := survivor.try(http.MethodPost, "/orders", body, header(i, "0s")...)
						switch {
						case err == nil && got.status == http.StatusCreated:
							return
						case err == nil && strings.Contains(got.body, "#held"):
							held.Store(i, got.body)
						}
						time.Sleep(50 * time.Millisecond)
					}
				})
			}
			placed := make(chan struct{})
			go func() { all.Wait(); close(placed) }()
			timeout := time.NewTimer(2 * time.Minute)
			defer timeout.Stop()
			select {
			case <-placed:
			case <-timeout.C:
				require.Fail(t, "an order is still not placed")
			}
			for i := range orders {
				_, refused := held.Load(i)
				require.False(t, refused, "order %d was refused by its own lock", i)
			}
		})
	}
}
