package lock

// Watch has a hint when as many nodes as make a majority have had one: one node's
// release alone frees nothing.
func (q *quorum) Watch(key string) (wake <-chan struct{}, stop func()) {
	var from []<-chan struct{}
	var stops []func()
	for _, node := range q.given {
		wake, stop := hintsOf(node)(key)
		stops = append(stops, stop)
		if wake != nil {
			from = append(from, wake)
		}
	}
	over := make(chan struct{})
	if len(from) >= q.need {
		wake = q.gather(from, over)
	}
	return wake, func() {
		close(over)
		for _, stop := range stops {
			stop()
		}
	}
}

// gather makes one channel of many, until over is closed.
func (q *quorum) gather(from []<-chan struct{}, over <-chan struct{}) <-chan struct{} {
	heard := make(chan struct{})
	for _, wake := range from {
		go func() {
			for receive(wake, over) {
				select {
				case heard <- struct{}{}:
				case <-over:
					return
				}
			}
		}()
	}
	hints := make(chan struct{}, 1)
	go func() {
		for n := 1; receive(heard, over); n++ {
			if n%q.need == 0 {
				select {
				case hints <- struct{}{}:
				default: // one that nobody has taken yet says the same
				}
			}
		}
	}()
	return hints
}

func receive(from, over <-chan struct{}) bool {
	select {
	case <-from:
		return true
	case <-over:
		return false
	}
}
