package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
)

func ExampleLocker_Do() {
	locker := lock.New(memstore.New()) // or redisstore.New(client)
	ctx := context.Background()

	err := locker.Do(ctx, lock.Key("user", "42"), func(ctx context.Context) error {
		// A second order of the same user, while the first is being placed.
		err := locker.Do(ctx, lock.Key("user", "42"), func(context.Context) error { return nil })
		fmt.Println(errors.Is(err, lock.ErrHeld))
		return nil
	})
	fmt.Println(err, locker.Close(ctx))
	// Output:
	// true
	// <nil> <nil>
}

// A queue that delivers a message twice.
func ExampleLocker_Once() {
	locker := lock.New(memstore.New())
	ctx := context.Background()
	for range 2 {
		receipt, replayed, err := locker.Once(ctx, "message-7", nil, func(context.Context) ([]byte, error) {
			fmt.Println("charging")
			return []byte("charge 99"), nil
		})
		fmt.Printf("%s, replayed: %v, %v\n", receipt, replayed, err)
	}
	// Output:
	// charging
	// charge 99, replayed: false, <nil>
	// charge 99, replayed: true, <nil>
}

// The first attempt fails after its first step. The second has the result of that step without a call.
func ExampleStep() {
	locker := lock.New(memstore.New(), lock.WithRerunAbandoned())
	call := func(result string, err error) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) {
			fmt.Println("calls for a", result)
			return []byte(result), err
		}
	}
	for _, outage := range []error{errors.New("no courier answers"), nil} {
		receipt, _, err := locker.Once(context.Background(), "order-7", nil, func(ctx context.Context) ([]byte, error) {
			charge, err := lock.Step(ctx, "charge", call("charge", nil))
			if err != nil {
				return nil, err
			}
			parcel, err := lock.Step(ctx, "courier", call("parcel", outage))
			return fmt.Appendf(nil, "%s, %s", charge, parcel), err
		})
		fmt.Printf("%q, %v\n", receipt, err)
	}
	// Output:
	// calls for a charge
	// calls for a parcel
	// "", no courier answers
	// calls for a parcel
	// "charge, parcel", <nil>
}

func ExampleKey() {
	fmt.Println(lock.Key("user", "42"))
	fmt.Println(lock.Key("order", "7", "eu"))
	fmt.Println(lock.Key("user", "a&b"))
	// Output:
	// user=42
	// order=7&eu
	// user=a~26b
}

// A cart that needs all of its items: another cart with one of them is refused.
func ExampleLocker_DoAll() {
	locker := lock.New(memstore.New())
	ctx := context.Background()
	cart := []string{lock.Key("item", "7"), lock.Key("item", "3"), lock.Key("coupon", "SPRING")}

	err := locker.DoAll(ctx, cart, func(ctx context.Context) error {
		err := locker.DoAll(ctx, []string{lock.Key("item", "3"), lock.Key("item", "8")}, func(context.Context) error { return nil })
		var refused *lock.RefusedError
		fmt.Println(errors.As(err, &refused), refused.Entry.Key)
		return nil
	})
	fmt.Println(err)
	// Output:
	// true item=3
	// <nil>
}

// Three exports of a tenant run at the same time, and no more.
func ExampleLocker_DoAny() {
	locker := lock.New(memstore.New())
	ctx := context.Background()
	permits := lock.Slots("export", 3, "tenant-7") // export=tenant-7#1 to export=tenant-7#3

	var export func(running int) error
	export = func(running int) error {
		return locker.DoAny(ctx, permits, func(context.Context, string) error {
			fmt.Println(running+1, "running")
			return export(running + 1)
		})
	}
	fmt.Println(errors.Is(export(0), lock.ErrHeld))
	// Output:
	// 1 running
	// 2 running
	// 3 running
	// true
}

// Settings of one route, over the same keys.
func ExampleLocker_With() {
	locker := lock.New(memstore.New())
	patient := locker.With(lock.WithWait(time.Minute), lock.WithMaxHold(time.Hour))

	lease, err := locker.Acquire(context.Background(), lock.Key("report", "2026"))
	if err != nil {
		fmt.Println(err)
		return
	}
	time.AfterFunc(10*time.Millisecond, func() { _ = lease.Release(context.Background()) })
	err = patient.Do(context.Background(), lock.Key("report", "2026"), func(context.Context) error {
		fmt.Println("waited for it")
		return nil
	})
	fmt.Println(err)
	// Output:
	// waited for it
	// <nil>
}

// The second order of a user waits for the first, and is not refused.
func ExampleWithWait() {
	locker := lock.New(memstore.New(), lock.WithWait(10*time.Second))
	ctx := context.Background()

	lease, err := locker.Acquire(ctx, lock.Key("user", "42"))
	if err != nil {
		fmt.Println(err)
		return
	}
	second := make(chan error)
	go func() {
		second <- locker.Do(ctx, lock.Key("user", "42"), func(context.Context) error {
			fmt.Println("second order")
			return nil
		})
	}()
	fmt.Println("first order")
	fmt.Println(lease.Release(ctx), <-second)
	// Output:
	// first order
	// second order
	// <nil> <nil>
}

// Work that is better done twice than not at all.
func ExampleWithFailOpen() {
	locker := lock.New(unreachable{memstore.New()}, lock.WithLogger(slog.New(slog.DiscardHandler)))
	remind := func(ctx context.Context) error {
		_, protected := lock.FromContext(ctx)
		fmt.Println("reminding, protected:", protected)
		return nil
	}
	ctx := context.Background()
	err := locker.Do(ctx, lock.Key("reminder", "42"), remind)
	fmt.Println(errors.Is(err, lock.ErrUnavailable))
	fmt.Println(locker.With(lock.WithFailOpen()).Do(ctx, lock.Key("reminder", "42"), remind))
	// Output:
	// true
	// reminding, protected: false
	// <nil>
}

// unreachable is a store that takes no claims.
type unreachable struct{ lock.Store }

func (unreachable) Claim(context.Context, string, lock.Claim) (lock.Entry, error) {
	return lock.Entry{}, lock.ErrNotApplied
}

// A cool-down: the key stays taken for a while after its work.
func ExampleLease_Settle() {
	locker := lock.New(memstore.New())
	ctx := context.Background()
	lease, err := locker.Acquire(ctx, lock.Key("user", "42"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Settle(ctx, nil, time.Minute))

	_, err = locker.Acquire(ctx, lock.Key("user", "42"))
	var refused *lock.RefusedError
	fmt.Println(errors.Is(err, lock.ErrSettled), errors.As(err, &refused), refused.Entry.Left.Round(time.Minute))
	// Output:
	// <nil>
	// true true 1m0s
}

// The fence lets the resource refuse a holder that has been overtaken.
func ExampleLease_Fence() {
	locker := lock.New(memstore.New(), lock.WithFencing())
	var last int64
	for range 3 {
		err := locker.Do(context.Background(), lock.Key("row", "7"), func(ctx context.Context) error {
			lease, _ := lock.FromContext(ctx)
			fence, ok := lease.Fence()
			fmt.Println(ok && fence > last) // UPDATE ... WHERE fence < $1
			last = fence
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// true
	// true
	// true
}

// A request starts an export, and a worker continues it. The key is held all the time.
func ExampleLease_HandOver() {
	locker := lock.New(memstore.New()) // a worker in another process has its own Locker over the same Redis
	ctx := context.Background()

	lease, err := locker.Acquire(ctx, lock.Key("export", "tenant-7"))
	if err != nil {
		fmt.Println(err)
		return
	}
	ticket, err := lease.HandOver(ctx, 10*time.Minute) // enqueue the ticket with the job
	fmt.Println("handed over:", err)

	_, err = locker.Acquire(ctx, lock.Key("export", "tenant-7"))
	fmt.Println("another request is refused:", errors.Is(err, lock.ErrHeld))

	resumed, err := locker.Resume(ctx, ticket)
	fmt.Println("resumed:", err)

	_, err = locker.Resume(ctx, ticket)
	fmt.Println("a second delivery of the job is refused:", errors.Is(err, lock.ErrLost))
	fmt.Println("released:", resumed.Release(ctx))
	// Output:
	// handed over: <nil>
	// another request is refused: true
	// resumed: <nil>
	// a second delivery of the job is refused: true
	// released: <nil>
}
