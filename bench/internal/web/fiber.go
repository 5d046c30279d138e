package web

import (
	"context"
	"errors"
	"net"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/idempotency"
	"github.com/gofiber/storage/redis/v3"

	"github.com/httplatch/httplatch/bench/internal/peer"
)

// Fiber does not run on net/http, so its guard is to be compared with its own
// bare handler. Its guard has the same header, and otherwise its defaults: keys
// of 36 bytes, all headers of the answer kept, and a lock in memory, so that it
// holds one process' duplicates apart and no other's, and asks Redis for nothing
// but the answers.

func openFiberBare(ctx context.Context, _ peer.Target, work func()) (*Service, error) {
	return serveFiber(ctx, work, nil, nothing)
}

func openFiberMemory(ctx context.Context, _ peer.Target, work func()) (*Service, error) {
	return serveFiber(ctx, work, idempotency.New(idempotency.Config{KeyHeader: "Idempotency-Key"}), nothing)
}

// openFiberRedis keeps answers with fiber's own Redis storage, over the same
// client as all others have.
func openFiberRedis(ctx context.Context, t peer.Target, work func()) (*Service, error) {
	client := peer.NewClient(t)
	guard := idempotency.New(idempotency.Config{
		KeyHeader: "Idempotency-Key",
		Storage:   redis.NewFromConnection(client),
	})
	return serveFiber(ctx, work, guard, func(context.Context) error { return client.Close() })
}

func serveFiber(ctx context.Context, work func(), guard fiber.Handler, after func(context.Context) error) (*Service, error) {
	app := fiber.New()
	if guard != nil {
		app.Use(guard)
	}
	app.Post("/orders", func(c fiber.Ctx) error {
		_ = c.Body() // read before, whether a handler asks for it or not
		work()
		c.Set("Content-Type", "application/json")
		return c.Status(fiber.StatusCreated).SendString(Answer)
	})
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- app.Listener(ln, fiber.ListenConfig{DisableStartupMessage: true}) }()
	return &Service{
		Addr: ln.Addr().String(),
		close: func(ctx context.Context) error {
			return errors.Join(app.ShutdownWithContext(ctx), after(ctx), <-ended)
		},
	}, nil
}
