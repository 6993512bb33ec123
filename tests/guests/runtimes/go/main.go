// Go's runtime: goroutines on several threads, timers, channels, garbage collection, preemption,
// pipes through its poller, files, randomness.
package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

func goroutines() {
	var wait sync.WaitGroup
	numbers := make(chan int)
	for task := 0; task < 100; task++ {
		wait.Add(1)
		go func(task int) {
			defer wait.Done()
			runtime.Gosched()
			numbers <- fib(10 + task%8)
		}(task)
	}
	go func() { wait.Wait(); close(numbers) }()
	sum := 0
	for number := range numbers {
		sum += number
	}
	fmt.Println("sum", sum)

	var lock sync.Mutex
	shared := map[string]int{}
	for task := 0; task < 8; task++ {
		wait.Add(1)
		go func(task int) {
			defer wait.Done()
			runtime.LockOSThread()
			for round := 0; round < 100; round++ {
				lock.Lock()
				shared[fmt.Sprint("key", round%10)]++
				lock.Unlock()
			}
		}(task)
	}
	wait.Wait()
	fmt.Println("shared", shared)
}

func timers() {
	start := time.Now()
	time.Sleep(10 * time.Millisecond)
	fmt.Println("slept", time.Since(start) >= 10*time.Millisecond)
	ticker := time.NewTicker(2 * time.Millisecond)
	for round := 0; round < 5; round++ {
		<-ticker.C
	}
	ticker.Stop()
	select {
	case <-time.After(3 * time.Millisecond):
		fmt.Println("after")
	case <-make(chan int):
		fmt.Println("never")
	}
	limited, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
	defer cancel()
	<-limited.Done()
	fmt.Println(limited.Err())
	order := make(chan int, 5)
	for task := 5; task > 0; task-- {
		delay := task
		time.AfterFunc(time.Duration(delay*20)*time.Millisecond, func() { order <- delay })
	}
	for round := 0; round < 5; round++ {
		fmt.Print(<-order, " ")
	}
	fmt.Println()
}

func garbage() {
	type node struct {
		next *node
		load [100]byte
	}
	var head *node
	for round := 0; round < 200000; round++ {
		head = &node{next: head}
		if round%1000 == 0 {
			head = nil
		}
	}
	length := 0
	for at := head; at != nil; at = at.next {
		length++
	}
	runtime.GC()
	var statistics runtime.MemStats
	runtime.ReadMemStats(&statistics)
	fmt.Println("length", length, "collected", statistics.NumGC > 0)
}

// A loop without calls is interrupted by a signal.
func preemption() {
	var spun [3]uint64
	running := make(chan bool)
	for task := 0; task < 3; task++ {
		go func(task int) {
			running <- true
			for number := uint64(1); number != 0; number++ {
				spun[task] = number
			}
		}(task)
	}
	for task := 0; task < 3; task++ {
		<-running
	}
	time.Sleep(20 * time.Millisecond)
	runtime.GC()
	fmt.Println("preempted")
}

func pipes() {
	reader, writer, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	go func() {
		for round := 0; round < 300; round++ {
			fmt.Fprintln(writer, strings.Repeat("x", 1000))
		}
		writer.Close()
	}()
	bytes, err := io.ReadAll(reader)
	fmt.Println("piped", len(bytes), err)
	reader, writer, _ = os.Pipe()
	reader.SetReadDeadline(time.Now().Add(3 * time.Millisecond))
	_, err = reader.Read(make([]byte, 1))
	fmt.Println("deadline", errors.Is(err, os.ErrDeadlineExceeded))
	go func() { time.Sleep(time.Millisecond); writer.Write([]byte("late")) }()
	reader.SetReadDeadline(time.Time{})
	buffer := make([]byte, 10)
	count, err := reader.Read(buffer)
	fmt.Println(string(buffer[:count]), err)
}

func files() {
	path := fmt.Sprintf("/tmp/guest-go-%d", os.Getpid())
	fmt.Println(os.WriteFile(path, []byte("text"), 0o600))
	bytes, err := os.ReadFile(path)
	fmt.Println(string(bytes), err, os.Remove(path))
	_, err = os.ReadFile(path)
	fmt.Println(errors.Is(err, os.ErrNotExist))
}

func randomness() {
	first, second := make([]byte, 32), make([]byte, 32)
	_, err := rand.Read(first)
	rand.Read(second)
	fmt.Println("random", string(first) != string(second), err)
	fmt.Printf("%x\n", sha256.Sum256([]byte("known")))
}

func signals() {
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGUSR1)
	fmt.Println(syscall.Kill(syscall.Getpid(), syscall.SIGUSR1))
	fmt.Println(<-caught)
	func() {
		defer func() {
			var fault runtime.Error
			err, _ := recover().(error)
			fmt.Println("recovered", errors.As(err, &fault))
		}()
		var nothing *[4]int
		fmt.Println(nothing[2])
	}()
}

var requests int

// An ordinary server, whose handlers wait, compute and use the runtime.
func serve() {
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		requests++
		body, _ := io.ReadAll(request.Body)
		time.Sleep(time.Millisecond)
		sums := make(chan int)
		for task := 0; task < 4; task++ {
			go func() { sums <- fib(10) }()
		}
		sum := 0
		for task := 0; task < 4; task++ {
			sum += <-sums
		}
		fmt.Fprintf(response, "%d %d %s", requests, sum, body)
	})
	panic(http.ListenAndServe(":8080", nil))
}

func main() {
	keys := os.Args[1:]
	if len(keys) > 0 && keys[0] == "serve" {
		serve()
	}
	sort.Strings(keys)
	fmt.Println(runtime.GOOS, keys)
	goroutines()
	timers()
	garbage()
	preemption()
	pipes()
	files()
	randomness()
	signals()
	if len(keys) > 0 {
		panic("on purpose")
	}
}
