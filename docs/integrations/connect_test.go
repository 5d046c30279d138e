package integrations_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	latch "github.com/httplatch/httplatch/middleware"
	latchconnect "github.com/httplatch/httplatch/middleware/connect"
)

func mountOverConnect(mux *http.ServeMux, locker *lock.Locker, service string, handler http.Handler) {
	const createProcedure = "/shop.v1.Orders/Create"

	once := latch.Idempotent(locker, keyfunc.Context(auth.UserID), keyfunc.IdempotencyKey, latch.WithErrorHandler(refuse))
	mux.Handle(service, auth.Require(handler))
	mux.Handle(createProcedure, auth.Require(once(handler)))
}

func ordersHandler(locker *lock.Locker, create connectCreate) http.Handler {
	patient := locker.With(lock.WithWait(10 * time.Second)) // a repeat waits for the first answer
	once := latchconnect.Once(patient, auth.UserID, latchconnect.IdempotencyKey)
	return auth.Require(connect.NewUnaryHandler(createMethod, create, connect.WithInterceptors(once)))
}

var refusals = connect.NewErrorWriter()

// refuse writes a refusal as an error of Connect.
func refuse(w http.ResponseWriter, r *http.Request, p *latch.Problem) {
	if !refusals.IsSupported(r) {
		p.ServeHTTP(w, r)
		return
	}
	_, kind, _ := strings.Cut(p.Type, "#")
	code := connect.CodeInternal
	switch {
	case kind == "held", kind == "cooling-down":
		code = connect.CodeAborted // of a Lock: a repeat would be another submission
	case p.RetryAfter > 0:
		code = connect.CodeUnavailable // to be sent again, with the same key
	case p.Status == http.StatusUnauthorized:
		code = connect.CodeUnauthenticated
	case p.Status == http.StatusConflict:
		code = connect.CodeFailedPrecondition // a person, or a program, has to look first
	case p.Status < 500:
		code = connect.CodeInvalidArgument
	}
	err := connect.NewError(code, errors.New(p.Title))
	if detail, failed := connect.NewErrorDetail(&errdetails.ErrorInfo{Reason: strings.ToUpper(strings.ReplaceAll(kind, "-", "_")), Domain: "github.com/httplatch/httplatch"}); failed == nil {
		err.AddDetail(detail)
	}
	_ = refusals.Write(w, r, err)
}

// auth is the authentication of the application that the page is about.
var auth = struct {
	Require func(http.Handler) http.Handler
	UserID  func(context.Context) string
}{requireUser, userOf}

type userKey struct{}

func requireUser(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user := r.Header.Get("X-User-ID")
		if user == "" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, user)))
	})
}

func userOf(ctx context.Context) string {
	user, _ := ctx.Value(userKey{}).(string)
	return user
}
