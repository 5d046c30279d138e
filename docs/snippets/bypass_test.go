package snippets_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/httplatch/httplatch/keyfunc"
	"github.com/httplatch/httplatch/lock"
	"github.com/httplatch/httplatch/lock/memstore"
	latch "github.com/httplatch/httplatch/middleware"
)

// payments counts how many requests pay an order at once.
type payments struct {
	mu            sync.Mutex
	paying, worst map[string]int
}

func (p *payments) pay(order string) {
	p.mu.Lock()
	p.paying[order]++
	p.worst[order] = max(p.worst[order], p.paying[order])
	p.mu.Unlock()
	time.Sleep(50 * time.Millisecond) // the request is a real one
	p.mu.Lock()
	p.paying[order]--
	p.mu.Unlock()
}

// payment is bound by gin and echo, which choose the tag by the Content-Type.
type payment struct {
	OrderID string `json:"order_id" form:"order_id" query:"order_id" xml:"order_id"`
}

// frameworks are handlers that find the order in each of the ways that a program has.
func (p *payments) frameworks() map[string]http.Handler {
	g := gin.New()
	g.POST("/pay", func(c *gin.Context) {
		var body payment
		if err := c.ShouldBind(&body); err != nil {
			c.Status(http.StatusBadRequest)
			return
		}
		p.pay(body.OrderID)
	})
	e := echo.New()
	e.POST("/pay", func(c echo.Context) error {
		var body payment
		if err := c.Bind(&body); err != nil {
			return err
		}
		p.pay(body.OrderID)
		return nil
	})
	return map[string]http.Handler{
		"gin ShouldBind": g,
		"echo Bind":      e,
		"FormValue":      http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { p.pay(r.FormValue("order_id")) }),
	}
}

const orderInMultipart = "--b\r\nContent-Disposition: form-data; name=\"order_id\"\r\n\r\nORDER\r\n--b--\r\n"

// TestTwoReadingsOfOneRequest: a client says one order to the guard and another to the
// handler, by a Content-Type or by a second value, and pays order 7 three times at once.
func TestTwoReadingsOfOneRequest(t *testing.T) {
	t.Parallel()
	const urlencoded, xml, multipart = "application/x-www-form-urlencoded", "application/xml", "multipart/form-data; boundary=b"
	byJSON, byQuery, byForm := keyfunc.JSON("/order_id"), keyfunc.Query("order_id"), keyfunc.Form("order_id")
	for name, tt := range map[string]struct {
		key                      keyfunc.Func
		contentType, query, body string // ORDER is the one that the guard shall lock
	}{
		"JSON, sent as a form":                {byJSON, urlencoded, "", `{"order_id":"ORDER","x":"&order_id=7&"}`},
		"JSON, sent as a form, odd case":      {byJSON, "Application/X-WWW-Form-Urlencoded ; charset=utf-8", "", `{"order_id":"ORDER","x":"&order_id=7&"}`},
		"JSON, sent as a form, malformed":     {byJSON, urlencoded + "; =", "", `{"order_id":"ORDER","x":"&order_id=7&"}`},
		"JSON, sent as a multipart form":      {byJSON, `multipart/form-data; boundary="x"`, "?order_id=7", `{"order_id":"ORDER"}`},
		"JSON, sent as XML":                   {byJSON, xml, "", `{"order_id":"ORDER","x":"<payment><order_id>7</order_id></payment>"}`},
		"JSON, sent as XML that ends as JSON": {byJSON, xml + " +json", "", `{"order_id":"ORDER","x":"<payment><order_id>7</order_id></payment>"}`},
		"JSON, without a type":                {byJSON, "", "?order_id=7", `{"order_id":"ORDER"}`},
		"JSON, as text":                       {byJSON, "text/plain", "?OrderID=7&order_id=7", `{"order_id":"ORDER"}`},
		"JSON, type with capitals":            {byJSON, "Application/JSON", "?order_id=7", `{"order_id":"ORDER"}`},
		"JSON, another JSON type":             {byJSON, "application/vnd.api+json", "?order_id=7", `{"order_id":"ORDER"}`},
		"the query, and a form":               {byQuery, urlencoded, "?order_id=ORDER", "order_id=7"},
		"the query, and a form, malformed":    {byQuery, urlencoded, "?order_id=ORDER", "order_id=7&%zz"},
		"a form, and the query":               {byForm, urlencoded, "?order_id=7", "order_id=ORDER"},
		"a multipart form, and the query":     {byForm, multipart, "?order_id=7", orderInMultipart},
		"a multipart form, and a bad query":   {byForm, multipart, "?order_id=7&%zz", orderInMultipart},
		"a multipart form of an odd spelling": {byForm, "Multipart/Form-Data; boundary=b", "?order_id=7", orderInMultipart},
	} {
		for framework := range new(payments).frameworks() {
			t.Run(name+", "+framework, func(t *testing.T) {
				t.Parallel()
				locker := lock.New(memstore.New())
				defer func() { require.NoError(t, locker.Close(t.Context())) }()
				p := &payments{paying: map[string]int{}, worst: map[string]int{}}
				srv := httptest.NewServer(latch.Lock(locker, "order", tt.key)(p.frameworks()[framework]))
				defer srv.Close()
				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() {
						query, body := strings.ReplaceAll(tt.query, "ORDER", fmt.Sprint(i+1)), strings.ReplaceAll(tt.body, "ORDER", fmt.Sprint(i+1))
						req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+"/pay"+query, strings.NewReader(body))
						if err != nil {
							t.Error(err)
							return
						}
						if tt.contentType != "" {
							req.Header.Set("Content-Type", tt.contentType)
						}
						resp, err := srv.Client().Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						resp.Body.Close()
					})
				}
				all.Wait()
				require.LessOrEqual(t, p.worst["7"], 1, "payments of order 7 at once")
			})
		}
	}
}

// TestOneReadingOfOneRequest is the twin: what both read alike is paid, once at a time.
func TestOneReadingOfOneRequest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key                      keyfunc.Func
		contentType, query, body string
		frameworks               []string
	}{
		"JSON":             {keyfunc.JSON("/order_id"), "application/json", "", `{"order_id":"7"}`, []string{"gin ShouldBind", "echo Bind"}},
		"a query":          {keyfunc.Query("order_id"), "application/x-www-form-urlencoded", "?order_id=7", "a=b", []string{"gin ShouldBind", "echo Bind", "FormValue"}},
		"a form":           {keyfunc.Form("order_id"), "application/x-www-form-urlencoded", "?a=b", "order_id=7", []string{"gin ShouldBind", "echo Bind", "FormValue"}},
		"a multipart form": {keyfunc.Form("order_id"), "multipart/form-data; boundary=b", "", strings.ReplaceAll(orderInMultipart, "ORDER", "7"), []string{"gin ShouldBind", "echo Bind", "FormValue"}},
	} {
		for _, framework := range tt.frameworks {
			locker := lock.New(memstore.New())
			p := &payments{paying: map[string]int{}, worst: map[string]int{}}
			h := latch.Lock(locker, "order", tt.key)(p.frameworks()[framework])
			r := httptest.NewRequest(http.MethodPost, "/pay"+tt.query, strings.NewReader(tt.body))
			r.Header.Set("Content-Type", tt.contentType)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code, "%s, %s: %s", name, framework, w.Body)
			require.Equal(t, map[string]int{"7": 1}, p.worst, "%s, %s", name, framework)
			require.NoError(t, locker.Close(t.Context()))
		}
	}
}
