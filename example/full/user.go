package main

import (
	"errors"
	"net/http"
	"strings"

	"github.com/httplatch/httplatch/keyfunc"
)

const (
	maxUserBytes = 128
	userBytes    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@+&=/~|"
)

var (
	userHeader = keyfunc.Header("X-User-ID")
	userQuery  = keyfunc.Query("user")
)

// userID returns the user of a request: its X-User-ID, which a gateway would set.
// An impossible user is refused here, before any lock is taken.
func userID(r *http.Request) (string, error) {
	user, err := userHeader(r)
	if err != nil {
		return "", err
	}
	return user, checkUser(user)
}

func checkUser(user string) error {
	if len(user) > maxUserBytes || strings.Trim(user, userBytes) != "" {
		return &keyfunc.Error{
			Status: http.StatusBadRequest,
			Err:    errors.New("user IDs are 1 to 128 ASCII letters, digits and ._-@+&=/~|"),
		}
	}
	return nil
}
