package faults_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/redisstore"
)

// childProxy is the address over which a child works; childURL has no faults.
const childProxy = "LATCH_TEST_PROXY"

// childLog is the setLog of a child: lines on its standard output. It answers the parent, which asks
// whether a holder is valid.
type childLog struct {
	mu      sync.Mutex
	last    int
	holders map[int]context.Context
	timers  *timers
}

// say writes a line, in one system call: the parent may kill the child at any time.
func (c *childLog) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = os.Stdout.WriteString(strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ") + "\n")
}

func (c *childLog) enter(ctx context.Context, n int, names []string) (leave func()) {
	c.mu.Lock()
	c.last++
	id := c.last
	c.holders[id] = ctx
	c.mu.Unlock()
	c.say("held %d %d %s", id, n, strings.Join(names, ","))
	return func() {
		c.mu.Lock()
		delete(c.holders, id)
		c.mu.Unlock()
		c.say("left %d", id)
	}
}

func (c *childLog) valid(id int) bool {
	c.mu.Lock()
	ctx := c.holders[id]
	c.mu.Unlock()
	return ctx != nil && ctx.Err() == nil
}

func (c *childLog) resumed(ticket int) { c.say("resumed %d", ticket) }

func (c *childLog) late() time.Duration { return c.timers.sum() }

func (c *childLog) count(what string) { c.say("count %s", what) }

func (c *childLog) violated(promise, format string, args ...any) {
	c.say("violated %s: %s", promise, fmt.Sprintf(format, args...))
}

// childBuys works on sets and permits, and on the tickets that it is sent, until its input ends.
func childBuys(ctx context.Context, direct *redisstore.Store) error {
	log := &childLog{holders: make(map[int]context.Context), timers: watchTimers()}
	defer log.timers.stop()
	client := redis.NewClient(&redis.Options{Addr: os.Getenv(childProxy)})
	b := &buyer{setLog: log, locker: newSetLocker(redisstore.New(client)), direct: direct}
	working, stop := context.WithCancel(ctx)
	defer stop()
	var all sync.WaitGroup
	for i, work := range []func(context.Context, *rand.Rand){b.set, b.permit} {
		plan := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(i)))
		all.Go(func() {
			for working.Err() == nil {
				work(ctx, plan)
			}
		})
	}
	log.say("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		id, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		switch words[0] {
		case "valid":
			log.say("valid %d %v", id, log.valid(id))
		case "resume":
			work, err := time.ParseDuration(words[3])
			if err != nil {
				return err
			}
			all.Go(func() { b.resume(ctx, id, words[4], words[2], work) })
		}
	}
	stop()
	all.Wait()
	closing, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return b.locker.Close(closing)
}

func newSetLocker(s lock.Store) *lock.Locker {
	return lock.New(s, lock.WithLogger(quiet), lock.WithBudget(campaignBudget), lock.WithLease(campaignLease), lock.WithMaxHold(campaignHold))
}
