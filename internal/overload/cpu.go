package overload

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// CPU is the use of the machine's processors during a measurement, in cores.
type CPU struct {
	Self   float64 // this process: callers, Locker and proxy
	Others float64 // everything else, the server's process among it; 0 where that is not known
}

// usage is a reading of both, since any time.
type usage struct {
	at        time.Time
	self, all time.Duration
}

func readUsage() usage { return usage{time.Now(), processCPU(), machineCPU()} }

func (u usage) since(before usage) CPU {
	wall := u.at.Sub(before.at).Seconds()
	self := (u.self - before.self).Seconds() / wall
	return CPU{self, max(0, (u.all-before.all).Seconds()/wall-self)}
}

// machineCPU is the time that Linux says was not idle, in all cores. A tick is a
// hundredth of a second for programs, whatever the kernel's own is.
func machineCPU() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	var user, nice, system, idle, wait, irq, softirq int64
	line, _, _ := strings.Cut(string(text), "\n")
	if _, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq); err != nil {
		return 0
	}
	return time.Duration(user+nice+system+irq+softirq) * 10 * time.Millisecond
}

// watchTimers notes how late timers are until it is over.
func watchTimers(late *histogram) (over func()) {
	const every = 5 * time.Millisecond
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			began := time.Now()
			select {
			case <-stop:
				return
			default:
				time.Sleep(every)
				late.add(time.Since(began) - every)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// Busy returns the cores in use by all processes, on average over d.
func Busy(d time.Duration) float64 {
	before := machineCPU()
	began := time.Now()
	time.Sleep(d)
	return (machineCPU() - before).Seconds() / time.Since(began).Seconds()
}
