package main

import (
	"context"
	"slices"
	"sync"
	"time"
)

// memoryJobs are the jobs of one process, the next one first.
type memoryJobs struct {
	mu  sync.Mutex
	all []memoryJob
}

type memoryJob struct {
	job
	due time.Time
}

func (m *memoryJobs) accept(_ context.Context, j job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, memoryJob{j, time.Now()})
	return nil
}

func (m *memoryJobs) next(context.Context) (job, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if len(m.all) == 0 || m.all[0].due.After(now) {
		return job{}, false, nil
	}
	first := m.all[0]
	first.due = now.Add(redelivery)
	m.all = append(m.all[1:], first)
	return first.job, true, nil
}

func (m *memoryJobs) accepted(_ context.Context, id string) (order, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.index(id); i >= 0 {
		return m.all[i].order, nil
	}
	return order{}, errNoOrder
}

func (m *memoryJobs) done(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.index(id); i >= 0 {
		m.all = slices.Delete(m.all, i, i+1)
	}
	return nil
}

func (m *memoryJobs) index(id string) int {
	return slices.IndexFunc(m.all, func(j memoryJob) bool { return j.ID == id })
}
