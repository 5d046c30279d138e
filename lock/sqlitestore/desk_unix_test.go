//go:build unix

package sqlitestore_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	osexec "os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/sqlitestore"
)

var kills = flag.Int("kills", 20, "how many desks the test of crashes kills")

// The variables by which a test starts this program as a desk.
const (
	deskFile  = "LATCH_TEST_DESK_FILE"
	deskKeys  = "LATCH_TEST_DESK_KEYS"  // how many keys there are
	deskNaive = "LATCH_TEST_DESK_NAIVE" // the receipt is outside of the transaction
)

// runDesk takes orders under random keys until the process is killed, and prints each key with its
// answer. A naive desk kills itself between the COMMIT of its third order and the receipt.
func runDesk(path string) error {
	keys, err := strconv.Atoi(os.Getenv(deskKeys))
	if err != nil {
		return err
	}
	own, err := sqlitestore.Open(context.Background(), path)
	if err != nil {
		return err
	}
	var store lock.Store = own
	if os.Getenv(deskNaive) != "" {
		var orders atomic.Int32
		store = &naive{Store: own, outside: func() {
			if orders.Add(1) == 3 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
		}}
	}
	l := lock.New(store, lock.WithTransaction(), lock.WithLogger(quiet), lock.WithLease(time.Second), lock.WithBudget(500*time.Millisecond))
	var out sync.Mutex
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				key := strconv.Itoa(mathrand.IntN(keys))
				if receipt, _, err := l.Once(context.Background(), key, nil, sell(key)); err == nil {
					out.Lock()
					_, _ = fmt.Fprintln(os.Stdout, key, string(receipt))
					out.Unlock()
				}
			}
		})
	}
	callers.Wait()
	return nil
}

// sell returns work that makes a sale of three rows in two tables, under a unique number.
func sell(key string) func(ctx context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		number := rand.Text()
		for _, statement := range []string{"INSERT INTO lines VALUES (?1, ?2)", "INSERT INTO sales VALUES (?1, ?2)", "INSERT INTO lines VALUES (?1, ?2)"} {
			if err := exec(ctx, statement, key, number); err != nil {
				return nil, err
			}
		}
		return []byte(number), nil
	}
}

func openSales(tb testing.TB) *shop {
	tb.Helper()
	s := &shop{path: file(tb)}
	s.store = open(tb, s.path)
	s.exec(tb, "CREATE TABLE sales (key TEXT NOT NULL, number TEXT NOT NULL)")
	s.exec(tb, "CREATE TABLE lines (key TEXT NOT NULL, number TEXT NOT NULL)")
	return s
}

// desk is a process that takes orders.
type desk struct {
	*osexec.Cmd

	answered chan struct{} // has a value once there is an answer
	over     chan struct{} // closed when all answers were read
}

// answers has the answers of desks, by key.
type answers struct {
	mu    sync.Mutex
	given map[string]string
	lies  []string
}

func (a *answers) add(key, answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, ok := a.given[key]; ok && before != answer {
		a.lies = append(a.lies, "key "+key+" has two answers: "+before+" and "+answer)
	}
	a.given[key] = answer
}

// start starts a desk over the file of s.
func (a *answers) start(t *testing.T, s *shop, keys int, more ...string) *desk {
	t.Helper()
	d := &desk{Cmd: osexec.CommandContext(t.Context(), os.Args[0]), answered: make(chan struct{}, 1), over: make(chan struct{})}
	d.Env = append(append(os.Environ(), deskFile+"="+s.path, deskKeys+"="+strconv.Itoa(keys)), more...)
	d.Stderr = os.Stderr
	out, err := d.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, d.Start())
	go func() {
		defer close(d.over)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil { // a part of a line was not given
				return
			}
			key, answer, _ := strings.Cut(strings.TrimSpace(line), " ")
			a.add(key, answer)
			select {
			case d.answered <- struct{}{}:
			default:
			}
		}
	}()
	t.Cleanup(d.kill)
	return d
}

// kill kills the desk, and waits until all of its answers were read.
func (d *desk) kill() {
	_ = d.Process.Kill()
	<-d.over
	_ = d.Wait()
}

// lost lists the mistakes in the rows of s: each key that was answered has one row, and its receipt
// is the answer.
func (s *shop) lost(t *testing.T, a *answers, keys int) []string {
	t.Helper()
	wrong := a.lies
	rows := make(map[string]string)
	found, err := s.store.DB().QueryContext(t.Context(),
		"SELECT key, min(number), count(*), (SELECT count(*) FROM lines WHERE lines.key = sales.key) FROM sales GROUP BY key")
	require.NoError(t, err)
	for found.Next() {
		var key, number string
		var sales, lines int
		require.NoError(t, found.Scan(&key, &number, &sales, &lines))
		if rows[key] = number; sales != 1 || lines != 2 {
			wrong = append(wrong, fmt.Sprintf("key %s has %d sales and %d lines", key, sales, lines))
		}
	}
	require.NoError(t, found.Err())
	require.NoError(t, found.Close())
	for key, answer := range a.given {
		if rows[key] != answer {
			wrong = append(wrong, fmt.Sprintf("key %s was answered with %s, and the row is %q", key, answer, rows[key]))
		}
	}
	l := s.locker(t, lock.WithWait(20*time.Second))
	for i := range keys {
		key := strconv.Itoa(i)
		receipt, replayed, err := l.Once(t.Context(), key, nil, sell(key))
		require.NoError(t, err)
		if _, there := rows[key]; replayed != there || there && string(receipt) != rows[key] {
			wrong = append(wrong, fmt.Sprintf("key %s has the receipt %s (replayed: %t), and the row was %q", key, receipt, replayed, rows[key]))
		}
	}
	for _, path := range []string{s.path, s.path + "-latch"} {
		var report string
		require.NoError(t, connect(t, path).QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&report))
		require.Equal(t, "ok", report)
	}
	return wrong
}

// Two desks on one file are killed, again and again, between and during their transactions.
func TestDesksThatAreKilled(t *testing.T) {
	t.Parallel()
	s, a, keys := openSales(t), &answers{given: make(map[string]string)}, 20**kills
	desks := []*desk{a.start(t, s, keys), a.start(t, s, keys)}
	for i := range *kills {
		d := desks[i%2]
		select {
		case <-d.answered:
		case <-d.over:
			t.Fatal("a desk has ended by itself")
		}
		time.Sleep(mathrand.N(60 * time.Millisecond))
		d.kill()
		desks[i%2] = a.start(t, s, keys)
	}
	for _, d := range desks {
		d.kill()
	}
	t.Logf("%d of %d keys were answered, by processes of which %d were killed", len(a.given), keys, *kills+2)
	require.Empty(t, s.lost(t, a, keys))
}

// Twin: a receipt outside of the transaction is lost with its process, and the order is there
// twice.
func TestTwinWithTheReceiptOutside(t *testing.T) {
	t.Parallel()
	s, a := openSales(t), &answers{given: make(map[string]string)}
	const keys = 30
	for range 3 {
		d := a.start(t, s, keys, deskNaive+"=1")
		<-d.over
		_ = d.Wait()
	}
	require.NotEmpty(t, s.lost(t, a, keys))
}
