// Command caddy is Caddy with its standard modules and the guards of httplatch.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/httplatch/httplatch/middleware/caddy"
)

func main() { caddycmd.Main() }
