package suite

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Metrics of a server of PostgreSQL.
const (
	WAL      = "WAL, bytes"
	HeapOnly = "heap-only updates, %"
)

// postgresMeter reads what a server has spent. It is no contender's.
type postgresMeter struct {
	conn *pgx.Conn
	cpu  map[string]float64 // of each of its processes, when it was last seen
}

// spending is the cost since the start, to this process and to the server.
type spending struct{ client, server, wal float64 }

// spending is without the server if the part has no meter.
func (b *bench) spending(ctx context.Context) (s spending, err error) {
	if b.meter != nil {
		if s, err = b.meter.spending(ctx); err != nil {
			return s, err
		}
	}
	s.client, err = processCPU()
	return s, err
}

func meterPostgres(ctx context.Context, url string) (*postgresMeter, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	return &postgresMeter{conn, map[string]float64{}}, nil
}

func (m *postgresMeter) close(ctx context.Context) error {
	return m.conn.Close(context.WithoutCancel(ctx))
}

// spending returns the WAL, and the CPU of all processes of the server, 0 where there is no /proc.
func (m *postgresMeter) spending(ctx context.Context) (s spending, err error) {
	var backend int
	err = m.conn.QueryRow(ctx, `SELECT pg_backend_pid(), pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8`).Scan(&backend, &s.wal)
	if err != nil {
		return s, err
	}
	postmaster := parentOf(backend)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", postmaster, postmaster))
	for pid := range strings.FieldsSeq(string(children)) {
		if text, err := os.ReadFile("/proc/" + pid + "/schedstat"); err == nil { //nolint:gosec // the kernel's own; the process may have ended
			nanos, _, _ := strings.Cut(string(text), " ")
			m.cpu[pid], _ = strconv.ParseFloat(nanos, 64)
		}
	}
	for _, nanos := range m.cpu {
		s.server += nanos / 1e3
	}
	return s, nil
}

// parentOf returns the number of the process that has started another, "" if it cannot be read.
func parentOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), ") ") // behind the name, which may have blanks
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return ""
	}
	return fields[1]
}

// heapOnly returns which part of a table's updates changed no index, in percent.
func heapOnly(ctx context.Context, url, table string) (percent float64, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, `SELECT 100.0 * n_tup_hot_upd / greatest(n_tup_upd, 1) FROM pg_stat_user_tables WHERE relname = $1`, table).Scan(&percent)
	return percent, err
}
