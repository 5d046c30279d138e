package suite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/internal/overload"
	"github.com/httplatch/httplatch/internal/testkit/must"
	"github.com/httplatch/httplatch/internal/testkit/process"
	"github.com/httplatch/httplatch/internal/testkit/respproxy"
)

// A child is one more process of this program, for callers whose process is not the
// holder's, and for proxies, whose cost is no contender's: a JSON value a line, on its
// standard input and output.

// job is the child's, in its environment.
type job struct {
	Kind     string
	Addr     string        // of the Redis server
	Delay    time.Duration // of a proxy
	Peer     string        // of refusals
	Window   time.Duration // of refusals
	Scenario *scenario
}

const jobVariable = "BENCH_JOB"

// answer is sent by a child that is ready, and then for each request.
type answer struct {
	Addr  string  `json:",omitempty"` // of a proxy
	Rate  float64 // of refusals
	Times int     // of refusals, with those that are not measured
	CPU   float64 // of all Times, in microseconds

	Outcome *outcome `json:",omitempty"` // of a scenario
}

// kinds of jobs return the answer of a child that is ready, and the function that answers requests.
var kinds = map[string]func(t *testing.T, j job) (ready answer, ask func() answer){
	"refusals": refusing,
	"far":      farProxy,
	"stalls":   stallingProxy,
	"scenario": func(t *testing.T, j job) (answer, func() answer) {
		t.Helper()
		return answer{}, func() answer { return answer{Outcome: j.Scenario.play(t)} }
	},
}

// TestChild is the child's side. It ends with its standard input.
func TestChild(t *testing.T) {
	text := os.Getenv(jobVariable)
	if text == "" {
		return // it is the parent
	}
	var j job
	require.NoError(t, json.Unmarshal([]byte(text), &j))
	require.Contains(t, kinds, j.Kind)
	answers := json.NewEncoder(os.Stdout)
	ready, ask := kinds[j.Kind](t, j)
	require.NoError(t, answers.Encode(ready))
	for requests := bufio.NewScanner(os.Stdin); requests.Scan(); {
		require.NoError(t, answers.Encode(ask()))
	}
}

type child struct {
	in    io.Writer
	pipe  io.Reader
	out   *json.Decoder
	ready answer
}

func start(tb testing.TB, j job) *child {
	tb.Helper()
	text := must.Get(json.Marshal(j))(tb)
	self := must.Get(os.Executable())(tb)
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), self, "-test.run=^TestChild$", "-test.timeout=20m")
	cmd.Env, cmd.Stderr = append(os.Environ(), jobVariable+"="+string(text)), os.Stderr
	in := must.Get(cmd.StdinPipe())(tb)
	out := must.Get(cmd.StdoutPipe())(tb)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = in.Close()
		require.NoError(tb, cmd.Wait())
	})
	c := &child{in: in, pipe: out, out: json.NewDecoder(out)}
	c.ready = must.Get(c.read())(tb)
	return c
}

func (c *child) read() (a answer, err error) {
	if err = c.out.Decode(&a); err != nil {
		rest, _ := io.ReadAll(io.MultiReader(c.out.Buffered(), c.pipe)) // why its test has failed
		err = fmt.Errorf("child: %w: %s", err, rest)
	}
	return a, err
}

func (c *child) ask() (answer, error) {
	if _, err := fmt.Fprintln(c.in); err != nil {
		return answer{}, err
	}
	return c.read()
}

func farProxy(t *testing.T, j job) (answer, func() answer) {
	t.Helper()
	p := startProxy(t, j.Addr, 0)
	p.Far(j.Delay)
	return answer{Addr: p.Addr()}, func() answer { return answer{} }
}

// startProxy starts a proxy that lets so many commands a second through, 0: all.
func startProxy(t *testing.T, server string, perSecond int) *overload.Proxy {
	t.Helper()
	port := must.Get(process.FreePort())(t)
	p := must.Get(overload.StartProxy(port, server, perSecond))(t)
	t.Cleanup(p.Close)
	return p
}

// stallingProxy delays replies to commands with stalledKey. It forgets, whenever it is
// asked, which commands it has seen.
func stallingProxy(t *testing.T, j job) (answer, func() answer) {
	t.Helper()
	p := respproxy.Start(t, j.Addr)
	return answer{Addr: p.Addr()}, func() answer {
		p.Clear()
		if j.Delay > 0 {
			p.On(respproxy.Match{Key: stalledKey, Func: firstTime()}, respproxy.DelayReply(j.Delay))
		}
		return answer{}
	}
}
