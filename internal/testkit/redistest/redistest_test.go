package redistest_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
)

// The test binary starts itself again with this set, as a process to kill.
const (
	helperEnv   = "REDISTEST_HELPER"
	helperHang  = "hang"
	helperQuick = "quick"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m)) }

type testRun func() int

func (r testRun) Run() int { return r() }

// A pool that is closed while its server is away looks once a second whether it
// may stop dialling: that is no leak of the tests.
func TestMainOutlastsDials(t *testing.T) {
	port, err := process.FreePort()
	require.NoError(t, err)
	redistest.Main(testRun(func() int {
		client := redis.NewClient(&redis.Options{
			Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), PoolSize: 1, MaxRetries: -1, DialerRetries: 1,
		})
		require.Error(t, client.Ping(t.Context()).Err())
		require.ErrorContains(t, goleak.Find(), "tryDial", "nothing is to be outlasted")
		require.NoError(t, client.Close())
		return 0
	})).Run()
	require.NoError(t, goleak.Find())
}

func TestStart(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", s.Do(t, "GET", "k"))
	require.Nil(t, s.Do(t, "GET", "absent"))

	opt, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	require.Equal(t, s.Addr(), opt.Addr)
	require.Equal(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())), s.Addr())
	require.NotEqual(t, 6379, s.Port())

	config := func(name string) string {
		pair, _ := s.Do(t, "CONFIG", "GET", name).([]any)
		require.Len(t, pair, 2)
		return fmt.Sprint(pair[1])
	}
	require.Equal(t, "127.0.0.1", config("bind"))
	require.Empty(t, config("save"))
	require.Equal(t, "no", config("appendonly"))
	require.Equal(t, s.Dir(), config("dir"))
}

func TestStartIsGoneAfterTheTest(t *testing.T) {
	for name, fault := range map[string]func(*redistest.Server){
		"running": func(*redistest.Server) {},
		"stopped": (*redistest.Server).Stop,
		"killed":  (*redistest.Server).Kill,
	} {
		var pid int
		var s *redistest.Server
		t.Run(name, func(t *testing.T) {
			s = redistest.Start(t)
			pid = pidOf(t, s)
			require.True(t, alive(pid))
			fault(s)
		})
		require.False(t, s.Running(), name)
		require.False(t, alive(pid), name)
		require.NoDirExists(t, s.Dir(), name)
	}
}

func TestArgsOverrideTheDefaults(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--maxmemory-policy", "volatile-lru", "--appendonly", "yes")
	require.Contains(t, s.Do(t, "CONFIG", "GET", "maxmemory-policy"), "volatile-lru")
	require.Contains(t, s.Do(t, "CONFIG", "GET", "appendonly"), "yes")
}

func TestPassword(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "p@ss/word")
	require.NoError(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, []string{"k"}, s.Keys(t))

	opt, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	require.Equal(t, "p@ss/word", opt.Password)

	stranger := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer func() { require.NoError(t, stranger.Close()) }()
	require.ErrorContains(t, stranger.Get(t.Context(), "k").Err(), "NOAUTH")
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--unixsocket", "redis.sock")
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: filepath.Join(s.Dir(), "redis.sock")})
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
	require.Equal(t, "v", s.Do(t, "GET", "k"))
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.Empty(t, s.Keys(t))
	var want []string
	_, err := s.Client(t).Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 3000 { // more than one page of SCAN
			want = append(want, fmt.Sprintf("k:%04d", i))
			p.Set(t.Context(), want[i], "", 0)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, want, s.Keys(t))
	require.Equal(t, []string{"k:0007", "k:1234", "k:1235"}, s.Keys(t, "*:1234", "k:123[45]", "k:0007"))
}

func TestStopAndCont(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	const long = 20 * time.Second
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	answer := make([]byte, len("+OK\r\n"))

	for i := range 10 {
		s.Stop()
		_, err := fmt.Fprintf(conn, "SET k %d\r\n", i)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		var timeout net.Error
		_, err = conn.Read(answer)
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		s.Cont()
		// The command lay in the socket, so it is applied although the client no longer waited.
		require.Eventually(t, func() bool { return s.Do(t, "GET", "k") == strconv.Itoa(i) }, long, 5*time.Millisecond)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(long)))
		_, err = io.ReadFull(conn, answer)
		require.NoError(t, err)
		require.Equal(t, "+OK\r\n", string(answer))
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		keys []string
	}{
		{"without persistence the keys are gone", nil, nil},
		{"with an append-only file they are there", []string{"--appendonly", "yes", "--appendfsync", "always"}, []string{"k"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, tt.args...)
			addr, dir := s.Addr(), s.Dir()
			s.Do(t, "SET", "k", "v")

			s.Kill()
			require.False(t, s.Running())
			_, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)

			s.Restart(t)
			require.True(t, s.Running())
			require.Equal(t, addr, s.Addr())
			require.Equal(t, dir, s.Dir())
			require.Equal(t, tt.keys, s.Keys(t))
		})
	}
}

func TestRestartOfAStoppedServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	old := pidOf(t, s)
	s.Stop()
	s.Restart(t)
	require.NotEqual(t, old, pidOf(t, s))
	require.False(t, alive(old))
}

func TestRestartWaitsForTheData(t *testing.T) {
	t.Parallel()
	// 100 µs a key, and the server answers (LOADING) meanwhile.
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always",
		"--key-load-delay", "100", "--loading-process-events-interval-bytes", "1024")
	c := s.Client(t)
	const keys = 5000
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range keys {
			p.Set(t.Context(), strconv.Itoa(i), "value", 0)
		}
		return nil
	})
	require.NoError(t, err)
	began := time.Now()
	s.Restart(t)
	require.Greater(t, time.Since(began), 200*time.Millisecond, "loading was slow")
	require.EqualValues(t, keys, s.Do(t, "DBSIZE"))
}

func TestShared(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	require.Same(t, s, redistest.Shared(t))
	key := t.Name()
	s.Do(t, "SET", key, "v")
	require.Equal(t, []string{key}, s.Keys(t, key))
}

func pidOf(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Client(t).InfoMap(t.Context(), "server").Result()
	require.NoError(t, err)
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	require.NoError(t, err)
	return pid
}

// alive reports whether pid exists; a child that is not reaped exists.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	return err == nil && p.Signal(syscall.Signal(0)) == nil
}
