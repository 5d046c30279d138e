package rowstore

import "context"

// Opened makes the tables of a store, and checks them. It returns the store, closed after an error.
func Opened[S interface {
	Migrate(ctx context.Context) error
	Check(ctx context.Context) error
	Close()
}](ctx context.Context, s S) (opened S, err error) {
	if err = s.Migrate(ctx); err == nil {
		err = s.Check(ctx)
	}
	if err != nil {
		s.Close()
		return opened, err
	}
	return s, nil
}
