// Package walk does what a page says, as a reader would: from an empty directory, it writes the
// files, types the commands, and compares what they print. A page that leaves a step out, or
// shows what is not printed, fails its test.
//
//	func TestMain(m *testing.M) { os.Exit(walk.Main(m).Run()) }
//
//	func TestTutorial(t *testing.T) { walk.Follow(t, "../tutorial.md", nil) }
//
// # What a page may have
//
// A ```console block has commands, each behind "$ ", and below each the lines that it prints. A
// command that ends with a backslash goes on in the next line. There is one shell for the whole
// page: directories, variables and background jobs last, also in the next block. Each line that is
// shown has to be printed, in this order; there may be more, such as log lines. In a line that is
// shown, "..." stands for any text, and a number of seconds (0.51s) for any other. A command
// succeeds, unless what is shown has FAIL, or a line that begins with "exit status" or "curl:".
//
// A command that ends with "&" goes on in the background. The next step waits for the lines that
// are shown below it; if there are none, until the ports that it names as localhost:PORT take
// connections, or else those that the page's files name so. What a process in the background
// prints can be shown below any later command.
//
// An ```sh block has lines "export NAME=value": servers that the reader has. The walk gives
// each its own: REDIS_URL is an empty Redis, DATABASE_URL an empty database of a PostgreSQL. The
// program takes them from its environment.
//
// Any other block is a file, whose name ends the line before it: "`main.go`:". A second block with
// the same name replaces the first.
//
// # Ports
//
// Walks run at the same time, and so do test binaries: each page prints ports of its own, as
// localhost:PORT. TestWalksHaveTheirOwnPorts, in docs/snippets, compares all pages of the
// repository. A walk waits for its ports to be free, and then for those that its
// commands listen on, for five minutes each: "go run" may have to compile.
//
// # Modules
//
// The modules of this repository that are published are served from this checkout, so that "go mod
// tidy" finds them. Other modules come from where they come from on this machine. A page names
// their versions ("go get example.com/module@v1.2.3"), so that no release of others changes what
// it prints. All walks of a test binary share a module cache, which is empty when the first begins;
// the machine's build cache has the compiled packages (-trimpath makes them the same), programs are
// linked without DWARF, which is faster, and tests always run (-count=1).
package walk
