// The paths of tests/tests/programs.rs in Go.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

var count int

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func timer() string {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for tick := 0; tick < 3; tick++ {
		<-ticker.C
	}
	done := make(chan bool)
	time.AfterFunc(time.Millisecond, func() { done <- true })
	<-done
	return "three ticks"
}

func file() string {
	var all sync.WaitGroup
	var read [8][]byte
	for index := range read {
		all.Add(1)
		go func(index int) {
			defer all.Done()
			read[index], _ = os.ReadFile(setting("HERE", "/srv") + "/data")
		}(index)
	}
	all.Wait()
	hash := sha256.New()
	for _, bytes := range read {
		hash.Write(bytes)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

func hash() string {
	public, private, err := ed25519.GenerateKey(nil)
	isSigned := err == nil && ed25519.Verify(public, []byte("message"), ed25519.Sign(private, []byte("message")))
	return fmt.Sprintf("%x %t", sha256.Sum256([]byte("abc")), isSigned)
}

func worker() string {
	runtime.GOMAXPROCS(4)
	var sum atomic.Int64
	var all sync.WaitGroup
	for number := 1; number <= 100; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			runtime.Gosched()
			sum.Add(int64(number))
		}(number)
	}
	all.Wait()
	return fmt.Sprint(sum.Load())
}

func bomb() {
	var kept [][]byte
	for {
		bytes := make([]byte, 1<<20)
		for index := range bytes {
			bytes[index] = 1
		}
		kept = append(kept, bytes)
	}
}

func fork() string {
	if err := exec.Command("/bin/true").Run(); err != nil {
		return "refused"
	}
	return "left with 0"
}

func dns() string {
	if _, err := net.DefaultResolver.LookupHost(context.Background(), "example.com"); err != nil {
		return "not found"
	}
	return "found"
}

func handle(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/counter":
		count++
		fmt.Fprint(w, count)
	case "/timer":
		fmt.Fprint(w, timer())
	case "/file":
		fmt.Fprint(w, file())
	case "/hash":
		fmt.Fprint(w, hash())
	case "/worker":
		fmt.Fprint(w, worker())
	case "/echo":
		w.Write(body)
	case "/stream":
		for number := 0; number < 3; number++ {
			fmt.Fprintln(w, number)
			w.(http.Flusher).Flush()
			time.Sleep(2 * time.Millisecond)
		}
	case "/throw":
		panic(http.ErrAbortHandler)
	case "/exit":
		os.Exit(3)
	case "/spin":
		for {
		}
	case "/bomb":
		bomb()
	case "/fork":
		fmt.Fprint(w, fork())
	case "/dns":
		fmt.Fprint(w, dns())
	default:
		fmt.Fprint(w, "no such path")
	}
}

func main() {
	server := http.Server{Addr: "127.0.0.1:" + setting("PORT", "8000"), Handler: http.HandlerFunc(handle)}
	fmt.Println(server.ListenAndServe())
}
