package wire

import "time"

// queue holds commands in the order of arrival. A command that has left out of its turn stays
// in all until the next look through the queue.
type queue struct {
	all  []*Command
	head int // index of the first command that may wait
	len  int // commands that wait
}

func (q *queue) add(c *Command) {
	q.all = append(q.all, c)
	q.len++
}

// first returns the command whose turn it is, nil if none waits.
func (q *queue) first() *Command {
	for ; q.head < len(q.all); q.head++ {
		if q.all[q.head].state == queued {
			return q.all[q.head]
		}
	}
	clear(q.all)
	q.all, q.head = q.all[:0], 0
	return nil
}

// expire ends the commands whose time is over, and forgets those that have left.
func (q *queue) expire(now time.Time, end func(*Command)) {
	kept := q.all[:0]
	for _, c := range q.all[q.head:] {
		if c.state == queued && !now.Before(c.deadline) {
			q.len--
			end(c)
		}
		if c.state == queued {
			kept = append(kept, c)
		}
	}
	clear(q.all[len(kept):])
	q.all, q.head = kept, 0
}
