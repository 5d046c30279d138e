package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/zeromicro/go-zero/core/logx"

	"github.com/httplatch/httplatch/bench/internal/host"
	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/redistest"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// ScenarioArg is the only argument of a program that is to run one scenario: a
// separate process, so that neither goroutines nor clean-ups of one are left to
// the next.
const ScenarioArg = "scenario"

// How the store is made, each over what has default options.
const (
	withOpen = "Open"
	withNew  = "New"
)

// scenario is what such a process is asked to do: a load, a network or an outage.
type scenario struct {
	Constructor string
	Room        int               // commands a second that the server has room for; 0: all it can do
	Load        *overload.Load    `json:",omitempty"`
	Network     *overload.Network `json:",omitempty"`
	Outage      *outage           `json:",omitempty"`
}

type outage struct {
	Fault              string
	Callers            int
	Before, For, After time.Duration
}

// outcome is what it answers.
type outcome struct {
	Error string `json:",omitempty"`

	Room     float64            // in cycles a second, by bare commands
	Load     *overload.Outcome  `json:",omitempty"`
	Phases   []overload.Passed  `json:",omitempty"`
	Recovery *overload.Recovery `json:",omitempty"`
}

// play runs a scenario, again if the machine did not stay as quiet as it has to
// be. What was played last counts.
func (b *bench) play(ctx context.Context, s scenario) (o outcome, err error) {
	const attempts = 5
	for attempt := range attempts {
		b.waitForQuiet(ctx)
		o, err = s.run(ctx)
		if err != nil || b.Quiet == 0 || o.others() <= b.Quiet {
			return o, err
		}
		if attempt < attempts-1 {
			b.log("others used %.1f cores: once more", o.others())
		}
	}
	return o, nil
}

func (b *bench) waitForQuiet(ctx context.Context) {
	const most = 10 * time.Minute
	for began := time.Now(); b.Quiet > 0 && time.Since(began) < most && ctx.Err() == nil; {
		if overload.Busy(time.Second) < b.Quiet {
			return
		}
	}
}

// others is what the rest of the machine used, give or take what a server needs
// that is used in full.
func (o outcome) others() float64 {
	const server = 0.7
	switch {
	case o.Load != nil:
		return o.Load.CPU.Others
	case o.Recovery == nil:
		return 0
	}
	return o.Recovery.CPU.Others - server
}

// run lets another process do it, and ends one that does not come to an end.
func (s scenario) run(ctx context.Context) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, s.most())
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return outcome{}, err
	}
	question, err := json.Marshal(s)
	if err != nil {
		return outcome{}, err
	}
	cmd := exec.CommandContext(ctx, self, ScenarioArg) //nolint:gosec // this program
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(question)), os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return outcome{}, fmt.Errorf("scenario: %w", err)
	}
	var o outcome
	if err := json.Unmarshal(text, &o); err != nil {
		return outcome{}, fmt.Errorf("scenario: %w", err)
	}
	if o.Error != "" {
		return outcome{}, fmt.Errorf("scenario: %s", o.Error)
	}
	return o, nil
}

// most is far more than a scenario takes.
func (s scenario) most() time.Duration {
	most := 2 * time.Minute
	if s.Load != nil {
		most += s.Load.For + s.Load.Then
	}
	if s.Network != nil {
		for _, phase := range s.Network.Phases {
			most += phase.For
		}
	}
	if s.Outage != nil {
		most += s.Outage.Before + s.Outage.For + s.Outage.After
	}
	return most
}

// PlayScenario reads what is to be done, does it, and writes what came of it.
func PlayScenario(ctx context.Context, in io.Reader, out io.Writer) error {
	var s scenario
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return fmt.Errorf("bench: a scenario: %w", err)
	}
	redis.SetLogger(silent{})
	logx.Disable() // of go-zero, which reports once a minute, where the outcome goes, how the process is
	var o outcome
	err := host.Run(func(h *host.Host) (err error) {
		o, err = s.play(ctx, h)
		return err
	})
	if err != nil {
		o.Error = err.Error()
	}
	return json.NewEncoder(out).Encode(o)
}

// silent is a log of go-redis, which has a line for each connection that is
// refused.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func (s scenario) play(ctx context.Context, h *host.Host) (o outcome, err error) {
	server := redistest.Start(h)
	port, err := process.FreePort()
	if err != nil {
		return o, err
	}
	proxy, err := overload.StartProxy(port, server.Addr(), s.Room)
	if err != nil {
		return o, err
	}
	defer proxy.Close()
	if s.Load != nil {
		if o.Room, err = overload.Room(ctx, proxy.Addr(), 2*time.Second); err != nil {
			return o, err
		}
	}
	locker, end, err := s.locker(ctx, proxy.Addr())
	if err != nil {
		return o, err
	}
	defer end()
	if s.Load != nil {
		result := s.Load.Run(ctx, locker, proxy)
		o.Load = &result
		return o, nil
	}
	if s.Network != nil {
		o.Phases = s.Network.Run(ctx, locker, proxy)
		return o, nil
	}
	recovery, err := s.Outage.with(proxy, server).Run(ctx, locker, proxy)
	o.Recovery = &recovery
	return o, err
}

// locker is one with default options. What it has left undone at the end is not
// waited for: the server goes.
func (s scenario) locker(ctx context.Context, addr string) (l *lock.Locker, end func(), err error) {
	client, store := (*redis.Client)(nil), (*redisstore.Store)(nil)
	switch s.Constructor {
	case withOpen:
		store, err = redisstore.Open(ctx, "redis://"+addr)
	case withNew:
		client = redis.NewClient(&redis.Options{Addr: addr})
		store = redisstore.New(client)
	default:
		err = fmt.Errorf("no constructor %q", s.Constructor)
	}
	if err != nil {
		return nil, nil, err
	}
	l = lock.New(store)
	return l, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = l.Close(ctx)
		_ = store.Close()
		if client != nil {
			_ = client.Close()
		}
	}, nil
}
