package middleware

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/httplatch/httplatch/lock"
)

// Step runs fn once for the submission that the handler of ctx serves, and returns its result. It is [lock.Step] with
// a result that is kept as JSON:
//
//	charge, err := latch.Step(ctx, "charge", func(ctx context.Context) (Charge, error) { return provider.Charge(ctx, amount) })
//
// Requests of client.Transport in fn have the key that [DeriveKey] returns for name, and other libraries get it from
// DeriveKey. So fn makes one call, which has one effect even if fn runs again. Give a second call in fn another name
// (client.Step), or make it a step of its own.
//
// The result is read from its JSON, in the first attempt too, so that all attempts go on with the same: fields that
// are not exported are lost. If it does not fit T, as after a change of the program, or has a field that T lacks,
// Step returns an error, and the result stays: have T read it. Other errors are as in lock.Step. In work of
// [lock.Locker.Once] without a handler, Step is the same, without the key.
func Step[T any](ctx context.Context, name string, fn func(ctx context.Context) (T, error)) (T, error) {
	var result, none T
	kept, err := lock.Step(ctx, name, func(ctx context.Context) ([]byte, error) {
		value, err := fn(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(value)
	})
	if err != nil {
		return none, err
	}
	d := json.NewDecoder(bytes.NewReader(kept))
	d.DisallowUnknownFields() // a renamed field would be lost
	if err := d.Decode(&result); err != nil {
		return none, fmt.Errorf("middleware.Step: the result of %q, which may be from another version of the program, does not fit a %T: %w; "+
			"it stays: have the type read it, and do not rename the step, which would then run again", name, &result, err)
	}
	return result, nil
}
