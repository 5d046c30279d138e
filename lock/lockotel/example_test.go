package lockotel_test

import (
	"context"
	"fmt"

	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/lockotel"
	"github.com/httplatch/httplatch/lock/memstore"
)

// Metrics and spans go to the providers that the program has set up with the
// SDK; without any, nowhere.
func Example() {
	telemetry := lockotel.New()
	locker := lock.New(memstore.New(), lock.WithObserver(telemetry.Observe), lock.WithOrigin(lockotel.Origin))
	stop := telemetry.Watch(locker)
	defer stop()

	err := locker.Do(context.Background(), lock.Key("user", "42"), func(context.Context) error {
		fmt.Println("reported as lock.acquisitions, with policy=user and outcome=acquired")
		return nil
	})
	fmt.Println(err)
	// Output:
	// reported as lock.acquisitions, with policy=user and outcome=acquired
	// <nil>
}
